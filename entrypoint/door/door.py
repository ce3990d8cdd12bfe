"""The door itself: listens, finds the way, holds who must wait, refuses who waited too long."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from core.refusal import Refusal
from entrypoint.door.ports import who_listens
from entrypoint.door.relay import Side

Target = tuple[str, int]

# Where this box's own engine listens; everything else is another box's door.
ENGINE_HOST = "127.0.0.1"
BACKLOG = 1024
CONNECT_S = 3.0
# How often a held request looks again, when nobody calls changed().
LOOK_S = 0.25
RETRY_AFTER_S = 15
# After a 503: how long a client's unread request is taken in and thrown away. Closing on unread bytes is a reset,
# and the client would not see the answer.
DRAIN_S = 2.0
# A box that lost power sends no FIN: its connections are dead after about 10 + 3 x 5 s.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
# Connections that come from the very box they would be relayed to. More than this at once means two doors that
# point at each other; a person's client on that box stays far below.
MOST_RETURNING = 256
# File descriptors that the door leaves to the rest of the kit: a flood of clients must not silence the protocol.
SPARED_FILES = 256
WANTED_FILES = 65536


@dataclass(eq=False)
class _Connection:
    """One accepted client."""

    client: Side
    engine: Side | None = None
    target: Target | None = None
    task: asyncio.Task[None] | None = None
    address: str = ""
    returning: bool = field(default=False)


class Door:
    """Relays every connection on host:port to `target()`.

    target   (host, port) of the serving engine or of the head's door; None while nothing serves
    hold_s   how long a new request waits for a target before 503
    stage    the boot's current stage, named in the 503
    source   local address for connections to other boxes (their view of who calls)
    """

    def __init__(
        self,
        host: str,
        port: int,
        target: Callable[[], Target | None],
        hold_s: float,
        stage: Callable[[], str],
        source: str | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.hold_s = hold_s
        self._target = target
        self._stage = stage
        self._source = source or (None if host in ("", "0.0.0.0") else host)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._change = asyncio.Event()
        self._most = _room()

    async def start(self) -> None:
        """Listen. Raises Refusal when the port is taken or the address is not this box's."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept, self.host, self.port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            raise self._refusal(error) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in list(self._connections):
            self._end(connection)
        await asyncio.gather(*tasks, return_exceptions=True)

    def changed(self) -> None:
        """Tell the door that target() may answer otherwise: the held look again, relays to a former target end."""
        self._change.set()
        self._change = asyncio.Event()
        now = self._aim()
        for connection in list(self._connections):
            if connection.target is not None and connection.target != now:
                self._end(connection)

    @property
    def open(self) -> int:
        """Connections of clients."""
        return len(self._connections)

    @property
    def held(self) -> int:
        """Requests that wait for an engine."""
        return sum(1 for each in self._connections if each.engine is None and each.client.kept_bytes)

    def _accept(self) -> Side:
        client = Side(lambda side, exc: self._lost(connection, side, exc))
        connection = _Connection(client)
        self._connections.add(connection)
        connection.task = asyncio.get_running_loop().create_task(self._serve(connection))
        return client

    async def _serve(self, connection: _Connection) -> None:
        """Wait for the first byte, then for an engine; join the two, or answer 503."""
        client = connection.client
        await client.made.wait()
        if len(self._connections) > self._most:
            await self._refuse(connection, f"{self._most} connections are open, more than this box takes")
            return
        await client.first_byte.wait()
        assert client.transport is not None
        if not client.kept:  # came and went without a word
            self._connections.discard(connection)
            client.transport.close()
            return
        connection.address = client.transport.get_extra_info("peername")[0]
        _keep_alive(client.transport)
        deadline = time.monotonic() + self.hold_s
        while True:
            change = self._change
            target = self._aim()
            if target is not None:
                if self._returns(connection, target):
                    await self._refuse(connection, "two boxes point at each other")
                    return
                if await self._connect(connection, target):
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                await self._refuse(connection, self._stage())
                return
            # Not wait_for: on 3.11 it swallows a cancellation that comes together with the change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_S)):
                    await change.wait()

    async def _connect(self, connection: _Connection, target: Target) -> bool:
        """True when the client is joined with an engine (or went away meanwhile)."""
        loop = asyncio.get_running_loop()
        local = (self._source, 0) if self._source and target[0] != ENGINE_HOST else None
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, engine = await loop.create_connection(
                    lambda: Side(lambda side, exc: self._lost(connection, side, exc)), *target, local_addr=local
                )
        except (OSError, TimeoutError):
            return False  # the engine is just going or coming: hold on
        if connection not in self._connections:
            transport.abort()
            return True
        _keep_alive(transport)
        connection.engine, connection.target = engine, target
        connection.client.join(engine)
        return True

    def _lost(self, connection: _Connection, side: Side, exc: Exception | None) -> None:
        """One side is gone: whatever it was sending is over, so the other ends too.

        In order only when both directions had been closed in order before.
        """
        if connection not in self._connections:
            return
        other = connection.engine if side is connection.client else connection.client
        orderly = exc is None and side.ended
        if orderly and other is not None and other.transport is not None:
            self._connections.discard(connection)
            other.transport.close()  # writes out what is still buffered
            return
        self._end(connection)

    def _end(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection.task is not None and connection.task is not asyncio.current_task():
            connection.task.cancel()
        connection.client.abort()
        if connection.engine is not None:
            connection.engine.abort()

    async def _refuse(self, connection: _Connection, stage: str) -> None:
        client = connection.client
        assert client.transport is not None
        client.discarding = True
        client.kept.clear()
        client.transport.resume_reading()
        client.transport.write(unavailable(stage, self.hold_s))
        if not client.transport.is_closing():
            client.transport.write_eof()
        deadline = time.monotonic() + DRAIN_S
        while not client.ended and connection in self._connections and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self._connections.discard(connection)
        client.transport.close()

    def _aim(self) -> Target | None:
        """target(), unless it is this very door."""
        target = self._target()
        itself = target is not None and target[1] == self.port and target[0] in (self.host, self._source)
        return None if itself else target

    def _returns(self, connection: _Connection, target: Target) -> bool:
        connection.returning = connection.address == target[0] and target[0] != ENGINE_HOST
        return connection.returning and sum(each.returning for each in self._connections) > MOST_RETURNING

    def _refusal(self, error: OSError) -> Refusal:
        where = f"port {self.port}"
        if error.errno == errno.EADDRINUSE:
            holder = who_listens(self.port) or "another process"
            return Refusal(
                where, f"held by {holder}", "free for the API", f"Stop {holder}, or set API_PORT in compose/.env."
            )
        if error.errno == errno.EACCES:
            return Refusal(where, "not permitted", "a port above 1023", "Set API_PORT in compose/.env.")
        return Refusal(
            f"address {self.host}", error.strerror or str(error), "an address of this box", "Set LAN_ADDRESS."
        )


def unavailable(stage: str, held_s: float) -> bytes:
    """The whole HTTP answer of a door with no engine behind it."""
    body = json.dumps(
        {
            "error": {
                "message": f"No engine serves yet (stage: {stage}); waited {held_s:g} s. Try again later.",
                "type": "service_unavailable",
                "code": 503,
                "stage": stage,
            }
        }
    ).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Retry-After: {RETRY_AFTER_S}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _room() -> int:
    """How many clients fit into this process's file descriptors, two each; the soft limit is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return (WANTED_FILES if soft == resource.RLIM_INFINITY else max(soft - SPARED_FILES, SPARED_FILES)) // 2


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
