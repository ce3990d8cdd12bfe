"""How a verb ends when it is told to: TERM and a lost terminal are cleaned up after like Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGHUP)


class Told(KeyboardInterrupt):
    """TERM, or the terminal has gone: to be cleaned up after like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def cleanly_ended() -> Iterator[None]:
    """TERM and a lost terminal raise Told where the verb stands; one that is ignored (nohup) stays so."""

    def tell(number: int, _frame: FrameType | None) -> None:
        raise Told(number)

    before = {number: signal.getsignal(number) for number in ENDS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def attended(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> tuple[int, KeyboardInterrupt | None]:
    """Run a program that cleans up after Ctrl-C, and wait until it has, however long that takes.

    Returns its exit status, and what ended it early. It is in a process group of its own: Ctrl-C, TERM and a lost
    terminal reach us alone, and each is passed on as INT, also where INT is ignored, as in a script's background job.
    """
    process = subprocess.Popen(command, env=environment, cwd=folder, process_group=0, preexec_fn=_hear_interrupts)
    early: KeyboardInterrupt | None = None
    while True:
        try:
            return process.wait(), early
        except KeyboardInterrupt as told:
            early = told
            process.send_signal(signal.SIGINT)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
