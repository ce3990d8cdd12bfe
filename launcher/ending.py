"""How a verb ends when it is told to: TERM and a lost terminal are cleaned up after like Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
