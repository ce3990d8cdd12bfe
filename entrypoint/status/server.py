"""The page's server: uvicorn as a part of the kit's process, which has signals and an end of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from entrypoint.status import connections


class Server(uvicorn.Server):
    """Answers until `end()`. Asleep in between: uvicorn's own wakes ten times a second, to refresh a header (which
    entrypoint/status/guard.py writes) and to see whether it is to end.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                date_header=False,
                **connections.OPTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No handlers: TERM is the boot's business."""
        yield

    async def main_loop(self) -> None:
        """Until the end."""
        await self._over.wait()

    def end(self) -> None:
        """Close what listens, give open answers a second, and return from `serve`."""
        self.should_exit = True
        self._over.set()
