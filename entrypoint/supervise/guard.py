"""The guard: a small process between the kit and vLLM. Run as `python -I -S guard.py NOTE FD KIT NICE argv...`.

It is a subreaper, so that nothing vLLM starts can leave its family; it notes processes and shared memory in the
file NOTE while they live; and it ends all of them when vLLM's main process ends or the kit dies (even by kill -9).
To the kit it says on FD, a line each: `pid N`, `exit STATUS` (main process), `removed SEGMENT`, `gone`.

Signals: TERM = TERM to vLLM's process group; INT = KILL everything now; HUP = the kit died (set by prctl).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

TYPE_CHECKING = False  # typing itself would cost the guard a megabyte
if TYPE_CHECKING:
    from entrypoint.supervise import processes
else:
    import processes

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How often the family is noted: soon after the start (much is created then), later seldom: a look reads the memory maps
# of all of vLLM's processes (8 ms in the lab with vLLM on CPU, 2 cores, 2026-11-30).
EARLY_LOOK_S, EARLY_LOOKS, LOOK_S = 0.2, 25, 5.0
# Helpers that outlive the main process get this long to end by themselves.
GRACE_S = 2.0
# Past this a process hangs in the kernel; the kit reports it.
KILL_S = 30.0


class Guard:
    """One run of one engine."""

    def __init__(self, note: str, report: int, kit: int, nice: int, argv: list[str]) -> None:
        self.note = note
        self.report = report
        self.kit = kit
        self.nice = nice
        self.argv = argv
        self.main = 0
        self.over = False
        self.seen: set[processes.Process] = set()
        self.segments: set[str] = set()

    def run(self) -> None:
        """Start the engine, watch it, end what is left."""
        os.set_inheritable(self.report, False)
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
        self.main = os.fork()
        if self.main == 0:
            self._become_engine()
        self.say(f"pid {self.main}")
        looks = 0
        while not self.over:
            self.look()
            looks += 1
            received = signal.sigtimedwait(HANDLED, LOOK_S if looks > EARLY_LOOKS else EARLY_LOOK_S)
            number = received.si_signo if received else 0
            if number == signal.SIGTERM:
                self._signal_group(signal.SIGTERM)
            if number in (signal.SIGINT, signal.SIGHUP) or os.getppid() != self.kit:
                break
            self.reap()
        self.finish(0.0 if not self.over else GRACE_S)

    def say(self, line: str) -> None:
        """One line to the kit; a kit that is gone reads nothing."""
        with contextlib.suppress(OSError):
            os.write(self.report, line.encode() + b"\n")

    def look(self) -> None:
        """Note the processes and segments of now; the note outlives both kit and guard."""
        members = self.family()
        segments = processes.shared_memory(pid for pid, _ in members)
        if members <= self.seen and segments <= self.segments:
            return
        self.seen |= members
        self.segments |= segments
        lines = [f"pid {pid} {started}" for pid, started in sorted(self.seen)]
        lines += [f"shm {path}" for path in sorted(self.segments)]
        try:
            with open(self.note + ".new", "w") as file:  # noqa: PTH123
                file.write("\n".join(lines) + "\n")
            os.replace(self.note + ".new", self.note)  # noqa: PTH105
        except OSError as error:
            print(f"guard: cannot write {self.note}: {error}", flush=True)

    def family(self) -> set[processes.Process]:
        """Everything beneath the guard that lives."""
        own = os.getpid()
        return {entry for entry in processes.family([own]) if entry[0] != own}

    def reap(self) -> None:
        """Collect the dead; the main process's end is reported at once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.over = True
                return
            if pid == 0:
                return
            if pid == self.main:
                self.say(f"exit {os.waitstatus_to_exitcode(status)}")
                self.over = True

    def finish(self, grace: float) -> None:
        """End what is left: TERM, `grace` seconds, KILL until nothing lives; then remove its shared memory."""
        started = time.monotonic()
        termed = False
        while time.monotonic() - started < grace + KILL_S:
            self.look()
            left = self.family()
            if not left:
                break
            if time.monotonic() - started >= grace:
                processes.kill(left)
            elif not termed:
                processes.send(left, signal.SIGTERM)
                termed = True
            time.sleep(0.02)
            self.reap()
        self.reap()
        for path in processes.remove(self.segments):
            self.say(f"removed {path}")
        if not self.family():
            with contextlib.suppress(OSError):  # a log folder that takes no more: the note was never written
                os.unlink(self.note)  # noqa: PTH108
            self.say("gone")

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended: reap() says so
            os.killpg(self.main, number)

    def _become_engine(self) -> None:
        """In the child: its own session, ended with the guard, default signals, stepping back, then vLLM."""
        os.setsid()
        os.nice(self.nice)
        # Outside a container the kernel shares processors between sessions, and niceness counts within one only.
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:  # noqa: PTH123
            group.write(str(self.nice))
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            os.execvpe(self.argv[0], self.argv, os.environ)
        except OSError as error:
            print(f"guard: cannot execute {self.argv[0]}: {error}", flush=True)
            os._exit(127)


if __name__ == "__main__":
    Guard(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]).run()
