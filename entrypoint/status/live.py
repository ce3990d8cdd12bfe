"""Server-sent events: one renderer for all who look, each gets only the sections that have changed for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

Render = Callable[[], Awaitable[tuple[str, dict[str, str], float]]]  # (title, html by id, pause in seconds)

MOST = 32  # readers at once; each is an open connection
SILENT_S = 15.0  # a comment line keeps middle boxes from closing a quiet stream


class Live:
    """The newest rendering, made only while somebody reads. `subscribe()` yields text for one reader."""

    def __init__(self, render: Render) -> None:
        self.render = render
        self.readers = 0
        self.title, self.html = "", dict[str, str]()
        self.version = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """True when no more readers are taken."""
        return self.readers >= MOST

    async def subscribe(self) -> AsyncIterator[str]:
        """Events for one reader, until it goes away; everything first, then what changes."""
        if self.full:  # many who came at once all saw room
            yield "retry: 10000\n\n"
            return
        self.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        known: dict[str, str] = {}
        version = 0
        try:
            yield "retry: 2000\n\n"
            while True:
                changed = self._changed
                if version != self.version:
                    version = self.version
                    news = {name: text for name, text in self.html.items() if known.get(name) != text}
                    known = self.html
                    if news:
                        yield f"event: sections\ndata: {json.dumps({'title': self.title, 'html': news})}\n\n"
                        continue
                try:
                    async with asyncio.timeout(SILENT_S):
                        await changed.wait()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self.readers -= 1

    async def _run(self) -> None:
        while self.readers:
            self.title, html, pause_s = await self.render()
            if html != self.html:
                self.html = html
                self.version += 1
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(pause_s)
