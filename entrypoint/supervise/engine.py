"""What the boot uses: start the engine, read what it prints, stop it, and know that it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from core.plan import Command
from core.units import MIB
from entrypoint.supervise import processes
from entrypoint.supervise.log import EngineLog

GUARD = Path(__file__).with_name("guard.py")
# After KILL: how long until a process that still shows is reported instead of waited for.
KILL_S = 30.0
# How long the guard may take to report once everything it watched was killed.
GUARD_S = 3.0
POLL_S = 0.1


@dataclass(frozen=True)
class Gone:
    """What was ended and removed. `left` is not empty when a process hangs in the kernel: (pid, start time)."""

    ended: int
    removed: tuple[str, ...]
    left: tuple[processes.Process, ...]
    seconds: float

    @property
    def confirmed(self) -> bool:
        """True when no process is left."""
        return not self.left


@dataclass(frozen=True)
class Stopped(Gone):
    """A stop: `status` of vLLM's main process (negative: the signal), `killed` when TERM was not enough."""

    status: int | None
    killed: bool


class Engine:
    """One engine of one incarnation.

    command      argv and the whole environment
    log_path     vllm.log; beside it `<log>.family` holds what runs, for the next kit if this one is killed
    on_line      called with every line the engine prints
    nice         how far it steps back for the kit when processors are short, 0 to 19
    box          this box's lan address, and `incarnation`: marks in the environment of everything started
    """

    def __init__(
        self,
        command: Command,
        log_path: Path,
        on_line: Callable[[str], None] | None = None,
        *,
        box: str,
        incarnation: str,
        log_max_bytes: int = 200 * MIB,
        nice: int = 0,
    ) -> None:
        self.command = command
        self.nice = nice
        self.incarnation = incarnation
        self.note = note_path(log_path)
        self.log = EngineLog(log_path, log_max_bytes, on_line)
        self.pid: int | None = None
        self.status: int | None = None
        self._marks = {processes.ENGINE_MARK: incarnation, processes.BOX_MARK: box}
        self._guard: asyncio.subprocess.Process | None = None
        self._exited = asyncio.Event()
        self._removed: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Execute the command; returns when its main process exists. The engine's output goes to the log.

        Call from the main thread: the guard dies with the thread that started it.
        """
        # Pipes of our own: asyncio's would make wait() last until the last holder of stdout is gone.
        reports, report = os.pipe()
        output, printed = os.pipe()
        try:
            self._guard = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(GUARD), str(self.note), str(report), str(os.getpid())),
                str(self.nice),
                *self.command.argv,
                env={**self.command.environment, **self._marks},
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(report,),
                start_new_session=True,
            )
        except (OSError, asyncio.CancelledError):  # asyncio has ended the guard then, and the guard's end ends vLLM
            os.close(reports)
            os.close(output)
            raise
        finally:
            os.close(report)
            os.close(printed)
        started = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._read_reports(reports, started)),
            asyncio.create_task(self._read_output(output)),
        ]
        await started.wait()

    async def wait(self) -> int:
        """The main process's exit status, at once when it ends (negative: the signal)."""
        await self._exited.wait()
        assert self.status is not None
        return self.status

    @property
    def running(self) -> bool:
        """True from start until the main process ends."""
        return self._guard is not None and not self._exited.is_set()

    def pids(self) -> tuple[int, ...]:
        """Everything of this engine that runs now; none before the start and after the end of the guard."""
        return tuple(sorted(pid for pid, _ in self._family())) if self._guard is not None else ()

    def tail(self, count: int = 50) -> tuple[str, ...]:
        """The last lines the engine printed."""
        return self.log.tail(count)

    async def stop(self, deadline_s: float) -> Stopped:
        """TERM, KILL after `deadline_s`, then confirmed gone; also after the engine ended by itself.

        Takes at most `deadline_s` + KILL_S. Safe to call twice.
        """
        began = time.monotonic()
        if self._guard is None:
            return Stopped(0, (), (), 0.0, None, False)
        ended = self._family()
        killed = False
        if self._guard.returncode is None:
            _signal(self._guard.pid, signal.SIGTERM)
            ended |= await self._until_gone(deadline_s)
            if self._guard.returncode is None or self._family():
                killed = True
                _signal(self._guard.pid, signal.SIGINT)
                ended |= await self._until_gone(GUARD_S)
        gone = await confirm_gone(self._marks[processes.BOX_MARK], self.note, self.incarnation)
        await asyncio.wait(self._tasks, timeout=GUARD_S)
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.log.close()
        for result in results:
            if isinstance(result, Exception):
                raise result  # e.g. on_line's own mistake: not ours to hide
        removed = tuple(sorted({*self._removed, *gone.removed}))
        seconds = time.monotonic() - began
        return Stopped(max(len(ended), gone.ended), removed, gone.left, seconds, self.status, killed)

    def _family(self) -> set[processes.Process]:
        assert self._guard is not None
        roots = {self._guard.pid, *processes.marked(processes.ENGINE_MARK, self.incarnation)}
        return {entry for entry in processes.family(roots) if entry[0] != self._guard.pid}

    async def _until_gone(self, deadline_s: float) -> set[processes.Process]:
        """Wait for the guard to report and end; everything that was seen meanwhile."""
        assert self._guard is not None
        seen: set[processes.Process] = set()
        until = time.monotonic() + deadline_s
        while self._guard.returncode is None and time.monotonic() < until:
            seen |= self._family()
            await asyncio.sleep(POLL_S)
        return seen

    async def _read_reports(self, pipe: int, started: asyncio.Event) -> None:
        assert self._guard is not None
        async with _reader(pipe) as reader:
            while line := (await reader.readline()).decode().strip():
                kind, _, rest = line.partition(" ")
                if kind == "pid":
                    self.pid = int(rest)
                    started.set()
                elif kind == "exit":
                    self._ended(int(rest))
                elif kind == "removed":
                    self._removed.append(rest)
        self._ended(await self._guard.wait())  # a guard that was killed reported no exit
        started.set()

    def _ended(self, status: int) -> None:
        if self.status is None:
            self.status = status
        self._exited.set()

    async def _read_output(self, pipe: int) -> None:
        async with _reader(pipe) as reader:
            while data := await reader.read(1 << 16):
                self.log.feed(data)


@contextlib.asynccontextmanager
async def _reader(pipe: int) -> AsyncIterator[asyncio.StreamReader]:
    """A stream over a pipe's read end, closed at the end."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb")
    )
    try:
        yield reader
    finally:
        transport.close()


def note_path(log_path: Path) -> Path:
    """Where the guard notes the engine's processes and shared memory."""
    return log_path.with_name(log_path.name + ".family")


async def confirm_gone(box: str, note: Path, incarnation: str | None = None) -> Gone:
    """End whatever runs of this box's engines (of one incarnation, or of any: at kit start) and prove it gone.

    Looks for the marks, and for what the note of a killed guard remembers. Removes the shared memory they held.
    Takes at most KILL_S; processes that survive KILL are in `left`.
    """
    began = time.monotonic()
    name, value = (processes.BOX_MARK, box) if incarnation is None else (processes.ENGINE_MARK, incarnation)
    noted, segments = processes.remembered(str(note))
    ended: set[processes.Process] = set()
    while True:
        # A kit that was itself started with the mark (by hand, from an engine's environment) must not end itself.
        roots = processes.marked(name, value) - {os.getpid(), os.getppid()}
        left = processes.alive(noted) | processes.family(roots)
        ended |= left
        if not left or time.monotonic() - began > KILL_S:
            break
        segments |= processes.shared_memory(pid for pid, _ in left)
        processes.kill(left)
        await asyncio.sleep(POLL_S)
    removed = processes.remove(segments) if not left else ()
    if not left:
        note.unlink(missing_ok=True)
    return Gone(len(ended), removed, tuple(sorted(left)), time.monotonic() - began)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
        os.kill(pid, number)
