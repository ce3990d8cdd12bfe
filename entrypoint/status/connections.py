"""Connections of the page: few enough, and none that only waits. uvicorn's protocol with deadlines of our own.

uvicorn bounds what is idle after an answer, not what never finishes a request or never reads its answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256
MOST_OF_ONE_ADDRESS = 64
HEAD_S = 10.0  # from a connection, or the first byte of a further request, to the end of its headers
READ_S = 30.0  # so long may a reader not take what is sent to it
LARGEST_HEAD = 16 * 1024
# What anybody can make uvicorn say as often as he likes.
NOISE = ("Invalid HTTP request received.", "Unsupported upgrade request.")


class Guarded(H11Protocol):
    """One connection. The oldest that has not asked anything makes room when there are too many."""

    _head: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None
    _began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and give it its time."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._head = self.loop.call_later(HEAD_S, self._abort)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Parse; the head's time runs while no request is under way."""
        if self._head is None and self._idle():
            self._head = self.loop.call_later(HEAD_S, self._abort)
        super().data_received(data)
        if not self._idle():
            _cancel(self._head)
            self._head = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        _cancel(self._head)
        _cancel(self._reader)
        self._head = self._reader = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The other side does not read: it has READ_S."""
        super().pause_writing()
        if self._reader is None:
            self._reader = self.loop.call_later(READ_S, self._abort)

    def resume_writing(self) -> None:
        """The other side reads again."""
        _cancel(self._reader)
        self._reader = None
        super().resume_writing()

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _abort(self) -> None:
        self._head = self._reader = None
        self.transport.abort()

    def _make_room(self) -> None:
        everybody = [one for one in self.connections if isinstance(one, Guarded)]
        address = self.client[0] if self.client else ""
        near = [one for one in everybody if one.client and one.client[0] == address]
        crowd = near if len(near) > MOST_OF_ONE_ADDRESS else everybody if len(everybody) > MOST else []
        if crowd:
            waiting = [one for one in crowd if one is not self and one._idle()]
            victim = min(waiting, key=lambda one: one._began, default=self)
            self.connections.discard(victim)
            victim.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def hush() -> None:
    """Keep uvicorn from writing a line for every bad request that somebody sends."""

    def wanted(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(NOISE)

    logger = logging.getLogger("uvicorn.error")
    logger.filters[:] = [wanted]


OPTIONS: dict[str, Any] = {
    "http": Guarded,
    "h11_max_incomplete_event_size": LARGEST_HEAD,
    # Who a request comes from is said by the connection, never by a header of it: limits go by address.
    "proxy_headers": False,
    "server_header": False,
}
