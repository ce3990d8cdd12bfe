"""Keeps one box of the lab up, as Docker keeps a container: `python -S lab/keeper.py keep SPEC.json`.

The keeper starts the box and starts it again when its kit ends by itself, with Docker's growing pause; not
when it was told to stop, nor after exit status 0 (stopped) or 2 (refused). With namespaces the box is a pid
namespace whose process 1 is `keeper.py init`, so when the kit dies everything in the box dies, as in a
container. Without, the keeper is the reaper of all orphans of the box, and ends them when told to stop.
Run by path, with the standard library only: each box has two of these, so they stay small.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PAUSE_S, LONGEST_PAUSE_S, RAN_WELL_S = 0.1, 60.0, 10.0
NAMESPACES = (
    "unshare", "--user", "--map-root-user", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child",
    "--mount-proc",
)  # fmt: skip


class Keeper:
    """One box: its spec (see lab/providers/process.py), and whether it was told to stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec: dict[str, Any] = json.loads((folder / "spec.json").read_text())
        self.stopping = False
        self.child: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    def run(self) -> int:
        """Start, wait, start again; returns when the box is to stay down."""
        (self.folder / "stop").unlink(missing_ok=True)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pause = PAUSE_S
        while True:
            started = time.monotonic()
            status = self._once()
            if self.stopping or status in (0, 2):
                break
            if time.monotonic() - started > RAN_WELL_S:
                pause = PAUSE_S
            self._tell("waiting to start again", status)
            self._sleep(pause)
            if self.stopping:
                break
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self.restarts += 1
        self._end_orphans()
        self._tell("refused" if status == 2 and not self.stopping else "stopped", status)
        return 0

    def _once(self) -> int:
        argv = list(self.spec["argv"])
        if self.spec["namespaces"]:
            me = str(Path(__file__).resolve())
            argv = [*NAMESPACES, sys.executable, "-S", "-E", me, "init", str(self.folder)]
        with (self.folder / "kit.log").open("ab") as log:
            self.child = subprocess.Popen(
                argv,
                env=self.spec["environment"],
                cwd=self.spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        self._tell("up", None)
        while True:  # reap orphans too: without namespaces they come to us
            pid, wait_status = os.wait()
            if pid == self.child.pid:
                status = os.waitstatus_to_exitcode(wait_status)
                self.child.returncode = status
                return status

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.stopping = True
        (self.folder / "stop").touch()  # process 1 of a namespace does not get a signal it has no handler for yet
        child = self.child
        if child is None or child.returncode is not None:
            return
        for pid in _children(child.pid) if self.spec["namespaces"] else [child.pid]:
            os.kill(pid, signal.SIGTERM)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < end:
            time.sleep(0.05)

    def _end_orphans(self) -> None:
        """Kill what the box left to us; our own children and theirs, until none is left."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            for pid in _children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _tell(self, state: str, status: int | None) -> None:
        """Write keeper.json, whole or not at all."""
        data = {
            "pid": os.getpid(),
            "born": _born(os.getpid()),
            "child": self.child.pid if self.child else None,
            "state": state,
            "restarts": self.restarts,
            "status": status,
        }
        new = self.folder / "keeper.json.new"
        new.write_text(json.dumps(data) + "\n")
        new.replace(self.folder / "keeper.json")


def init(folder: Path) -> int:
    """Process 1 of a box: private /dev/shm and host name, then the kit; reaps orphans, passes TERM on."""
    spec: dict[str, Any] = json.loads((folder / "spec.json").read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") != 0:
        print(f"lab: /dev/shm stays shared: {os.strerror(ctypes.get_errno())}", flush=True)
    socket.sethostname(spec["hostname"])
    kit = subprocess.Popen(spec["argv"])
    signal.signal(signal.SIGTERM, lambda *_: kit.send_signal(signal.SIGTERM))
    if (folder / "stop").exists():
        kit.send_signal(signal.SIGTERM)
    while True:
        pid, wait_status = os.wait()
        if pid == kit.pid:
            status = os.waitstatus_to_exitcode(wait_status)
            return status if status >= 0 else 128 - status


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _children(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass  # ended while we looked
    return found


def _born(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


if __name__ == "__main__":
    chosen = Path(sys.argv[2])
    sys.exit(Keeper(chosen).run() if sys.argv[1] == "keep" else init(chosen))
