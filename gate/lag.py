"""Is this machine fast enough to measure with? A client that wakes up late reports the server's tokens late.

A task sleeps for a known time, over and over; by how much it wakes up late is the error of every time taken meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

EVERY_S = 0.01
SHARE = 0.05  # of the time measured, above which a figure is not to be trusted
FLOOR_S = 0.01


@dataclass
class Window:
    """The worst lateness while it was open, in seconds. What the loop did before it opened does not count."""

    worst_s: float = 0.0
    opened: float = 0.0

    def complaint(self, measured_s: float) -> str:
        """Why a time of `measured_s` is not to be trusted, or an empty text."""
        if self.worst_s <= max(FLOOR_S, SHARE * measured_s):
            return ""
        return (
            f"client late: this machine woke up {1000 * self.worst_s:.0f} ms late while measuring {measured_s:.2f} s; "
            "ask again from an idle one"
        )


class Lag:
    """Watches the event loop it runs in."""

    def __init__(self) -> None:
        self._open: list[Window] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Collect the worst lateness of a block."""
        made = Window(opened=time.perf_counter())
        self._open.append(made)
        try:
            yield made
        finally:
            self._open.remove(made)

    async def _watch(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(EVERY_S)
            now = time.perf_counter()
            for window in self._open:
                window.worst_s = max(window.worst_s, now - max(started + EVERY_S, window.opened))
