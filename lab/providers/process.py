"""Boxes as processes of this machine: start, stop, enter, find and signal them.

A box is its keeper (lab/keeper.py) and what lives below it. Where the kernel permits, the box is a pid,
mount, host-name and IPC namespace of its own; else it is found by its keeper and by its mark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.refusal import Refusal
from entrypoint.supervise import processes as supervised
from hosts.local import Local
from lab import blocks, processes
from lab.processes import Process
from lab.state import Box, Lab
from launcher.paths import ROOT

What = Literal["kit", "engine", "worker", "box"]
# The kit itself, then its helper that outlives it to end the engine.
KIT_TITLES = (" -m entrypoint", "entrypoint/supervise/guard.py")
KEEPER = ROOT / "lab" / "keeper.py"
PROBE = (
    "unshare", "--user", "--map-root-user", "--pid", "--mount", "--uts", "--ipc", "--fork", "--mount-proc",
    "mount", "-t", "tmpfs", "tmpfs", "/dev/shm",
)  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """keeper.json: what the keeper last said, and whether it is alive."""

    alive: bool
    pid: int
    child: int | None
    state: str
    restarts: int
    status: int | None


def namespaces_permitted() -> bool:
    """Whether this user may make the namespaces of a box here (Ubuntu's AppArmor may forbid it)."""
    try:
        return Local().run(PROBE, deadline_s=5).status == 0
    except Refusal:
        return False


def address(block: int, number: int) -> str:
    """Loopback address of a box."""
    return blocks.address(block, number)


def check() -> None:
    """Processes can be started anywhere."""


def prepare(lab: Lab) -> None:
    """Nothing is shared by the boxes of a lab."""


def kit_log(box: Box) -> Path:
    """The file that holds what the kit wrote."""
    return box.path / "kit.log"


def start(
    lab: Lab,
    box: Box,
    argv: list[str],
    environment: Mapping[str, str],
    claim: int | None,
    front: tuple[str, ...] = (),
) -> None:
    """Start the box's keeper, behind `front`; `claim` is the descriptor that holds the lab's address block."""
    if kept(box).alive:
        raise Refusal("box", f"{box.name} is up", "a box that is down", f"./glm53 lab stop {box.name}")
    box.path.mkdir(parents=True, exist_ok=True)
    spec = {
        "argv": argv,
        "environment": dict(environment),
        "cwd": str(box.path),
        "namespaces": lab.namespaces,
        "hostname": f"{lab.group}-{box.name}",
    }
    file = box.path / "spec.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(spec, indent=1) + "\n")
    (box.path / "keeper.json").unlink(missing_ok=True)
    (box.path / "kit.log").touch()
    processes.whole(lambda: _start_keeper(lab, box, claim, front))


def _start_keeper(lab: Lab, box: Box, claim: int | None, front: tuple[str, ...]) -> None:
    """Returns once the keeper has said that it runs; Refusal after 10 s."""
    with (box.path / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [*front, sys.executable, "-S", "-E", str(KEEPER), "keep", str(box.path)],
            cwd=ROOT,
            env={"PATH": os.environ.get("PATH", os.defpath), mark(lab, box)[0]: mark(lab, box)[1]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if claim is None else (claim,),
        )
    if not processes.wait_until(lambda: (box.path / "keeper.json").exists() or keeper.poll() is not None, 10, 0.01):
        keeper.kill()
        raise Refusal("lab", f"{box.name} did not start in 10s", "its keeper to say so", f"Read {box.path}/keeper.log")


def mark(lab: Lab, box: Box) -> tuple[str, str]:
    """The environment variable that every process of a box carries."""
    return "GLM53_LAB_BOX", f"{lab.group}/{box.name}"


def kept(box: Box) -> Kept:
    """What the keeper last wrote; not alive when there is none."""
    try:
        data = json.loads((box.path / "keeper.json").read_text())
    except FileNotFoundError:
        return Kept(False, 0, None, "never started", 0, None)
    now = processes.look(data["pid"])
    alive = now is not None and now.born == data["born"]
    state = data["state"] if alive or data["state"] in ("stopped", "refused") else "keeper gone"
    return Kept(alive, data["pid"], data["child"] if alive else None, state, data["restarts"], data["status"])


def stop(lab: Lab, box: Box, grace_s: float) -> bool:
    """TERM, wait `grace_s`, then KILL; True when it ended by itself. Nothing of the box remains."""
    before = kept(box)
    gently = True
    if before.alive:
        resume(lab, box)
        os.kill(before.pid, signal.SIGTERM)
        gently = processes.wait_until(lambda: not kept(box).alive, grace_s)
    kill_all(lab, box)
    return gently


def kill_all(lab: Lab, box: Box) -> None:
    """End every process of the box and its keeper at once (power off), its shared memory too; Refusal when one
    survives 10 s.
    """
    segments = shared_memory(lab, box)

    def gone() -> bool:
        left = everything(lab, box)
        processes.send(left, signal.SIGKILL)
        return not left

    processes.wait_until(gone, 10)
    left = ", ".join(f"{process.pid} {process.title[:40]}" for process in everything(lab, box))
    if left:
        raise Refusal("lab", f"{box.name} still has {left}", "no process of it", "Look at them with ps.")
    supervised.remove(segments)


def shared_memory(lab: Lab, box: Box) -> set[str]:
    """The box's segments in the machine's own /dev/shm: what its processes map, and what its kit noted of an engine.

    A box in namespaces has a /dev/shm of its own, which ends with it.
    """
    if lab.namespaces:
        return set()
    found = supervised.shared_memory(process.pid for process in everything(lab, box))
    for note in (box.path / "logs").glob("*.family"):
        found |= supervised.remembered(str(note))[1]
    return {path for path in found if Path(path).exists()}


def everything(lab: Lab, box: Box) -> list[Process]:
    """The keeper, all below it, and whatever carries the box's mark or address."""
    keeper = kept(box)
    table = processes.everything()
    found = {process.pid: process for process in (processes.below(keeper.pid, table) if keeper.alive else [])}
    name, value = mark(lab, box)
    for text in (f"{name}={value}", f"GLM53_BOX={box.address}"):
        found |= {process.pid: process for process in processes.carrying(text)}
    return list(found.values())


def inside(lab: Lab, box: Box) -> list[Process]:
    """What runs in the box: without its keeper, and without process 1 of its namespace."""
    keeper = kept(box)
    if not keeper.alive or keeper.child is None:
        return []
    family = processes.below(keeper.child) if lab.namespaces else processes.below(keeper.pid)[1:]
    return family[2:] if lab.namespaces else family


def process_one(lab: Lab, box: Box) -> Process | None:
    """Process 1 of the box's pid namespace (its pid as seen from here); None without one."""
    keeper = kept(box)
    family = processes.below(keeper.child) if keeper.alive and keeper.child and lab.namespaces else []
    return family[1] if len(family) > 1 else None


def find(lab: Lab, box: Box, what: What) -> list[Process]:
    """The kit; the engine (all that the kit started or left); vLLM's workers; or the whole box."""
    return everything(lab, box) if what == "box" else part(inside(lab, box), what)


def part(family: Sequence[Process], what: What) -> list[Process]:
    """What `find` names of the processes of a box, oldest first."""
    kits = [process for process in family if any(words in process.title for words in KIT_TITLES)]
    if what == "kit":
        return kits[:1]
    engine = [process for process in family if process not in kits]
    return engine if what == "engine" else [process for process in engine if process.title.startswith("VLLM::Worker")]


def pause(lab: Lab, box: Box) -> int:
    """Stop every process of the box where it stands, as a suspended machine; returns how many."""
    stopped: dict[int, Process] = {}

    def all_stopped() -> bool:
        one = process_one(lab, box)
        now = [*([one] if one else []), *inside(lab, box)]
        running = [process for process in now if process.state != "T"]
        processes.send(running, signal.SIGSTOP)
        stopped.update({process.pid: process for process in now})
        return not running

    processes.wait_until(all_stopped, 5, 0.02)
    return len(stopped)


def resume(lab: Lab, box: Box) -> int:
    """Let a paused box go on; returns how many processes were stopped."""
    one = process_one(lab, box)
    stopped = [p for p in [*([one] if one else []), *inside(lab, box)] if p.state == "T"]
    return processes.send(stopped, signal.SIGCONT)


def host(lab: Lab, box: Box) -> Local:
    """Where commands run as if in the box: its namespaces and its environment."""
    environment: dict[str, str] = json.loads((box.path / "spec.json").read_text())["environment"]
    front = ["env", "-i", *(f"{name}={value}" for name, value in sorted(environment.items()))]
    if lab.namespaces:
        one = process_one(lab, box)
        if one is None:
            raise Refusal("box", f"{box.name} is down", "a box that is up", f"./glm53 lab start {box.name}")
        spaces = ["--user", "--preserve-credentials", "--pid", "--mount", "--uts", "--ipc"]
        front = ["nsenter", "--target", str(one.pid), *spaces, *front]
    return Local(box.name, tuple(front))


def leftovers(lab: Lab) -> list[str]:
    """What still exists of a lab that is down: processes, listening sockets, shared memory; one line each."""
    found = []
    for box in lab.boxes:
        found += [f"process {p.pid} {p.title[:60]}" for p in everything(lab, box)]
        found += [f"socket {local}" for local in listening() if local.rpartition(":")[0] == box.address]
        found += [f"shared memory {path}" for path in sorted(shared_memory(lab, box))]
    return found


def listening() -> list[str]:
    """address:port of every listening IPv4 TCP socket of this machine."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            raw, port = local.split(":")
            octets = [str(byte) for byte in bytes.fromhex(raw)[::-1]]
            found.append(f"{'.'.join(octets)}:{int(port, 16)}")
    return found
