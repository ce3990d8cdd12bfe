"""One client's connection and its way to the engine: two protocols that hand each other bytes.

Kept end to end: order, half-close (an EOF is passed on, the other direction stays open), backpressure (who cannot
write stops the other's reading), and an abnormal end (a reset on one side is a reset on the other).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

# Kept of a client's request while there is no engine; the rest waits in the kernel.
HELD_BYTES = 64 * 1024
# SO_LINGER of 0 s: close() sends a reset, where it would otherwise send an orderly end.
RESET = struct.pack("ii", 1, 0)


class Side(asyncio.Protocol):
    """One of the two connections of a relay."""

    def __init__(self, lost: Callable[[Side, Exception | None], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.kept: list[bytes] = []
        self.kept_bytes = 0
        self.ended = False
        self.blocked = False
        self.discarding = False
        self.made = asyncio.Event()
        self.first_byte = asyncio.Event()
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport of this side."""
        self.transport = cast(asyncio.Transport, transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        """Bytes go straight to the other side; before there is one they are kept, up to HELD_BYTES."""
        if self.other is not None:
            assert self.other.transport is not None
            self.other.transport.write(data)
        elif not self.discarding:
            self.kept.append(data)
            self.kept_bytes += len(data)
            self.first_byte.set()
            if self.kept_bytes >= HELD_BYTES and self.transport is not None:
                self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer will send no more; our own direction stays open until the other side ends it."""
        self.ended = True
        self.first_byte.set()
        if self.other is not None:
            _write_eof(self.other)
            if self.other.ended:
                return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, in order (None) or not."""
        self.first_byte.set()
        self._lost(self, exc)

    def pause_writing(self) -> None:
        """This side's peer reads slowly: stop reading from the other."""
        self.blocked = True
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """It caught up."""
        self.blocked = False
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def join(self, other: Side) -> None:
        """Make a pair of a client's side (self) and an engine's, and pass on what was kept."""
        assert self.transport is not None
        self.other, other.other = other, self
        assert other.transport is not None
        for data in self.kept:
            other.transport.write(data)
        self.kept.clear()
        if self.ended:
            _write_eof(other)
        if not other.blocked:  # a long kept request may have filled its buffer: then resume_writing() goes on
            self.transport.resume_reading()

    def abort(self) -> None:
        """End at once, with a reset: what was half sent must not look whole."""
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            if sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.transport.abort()


def _write_eof(side: Side) -> None:
    assert side.transport is not None
    if not side.transport.is_closing():
        side.transport.write_eof()
