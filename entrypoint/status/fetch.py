"""One bounded HTTP request to another box or to the engine: a deadline over all of it, a cap on what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import h11

LARGEST_HEAD = 16 * 1024
BLOCK = 1 << 16


class FetchFailed(Exception):
    """No usable answer; the text says why, short enough to show."""


@dataclass(frozen=True)
class Fetched:
    """An answer: status, headers (lower-case names, the last of a kind wins) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def fetch(
    host: str,
    port: int,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float,
    largest: int,
    source: str = "",
) -> Fetched:
    """Ask once over a connection of its own. Raises FetchFailed for silence, nonsense, and more than `largest` bytes.

    `source`: our address ("": any). Answers come from others: what is in them is for the caller to judge.
    """
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(host, port, path, method, {**(headers or {})}, body, largest, source)
    except TimeoutError:
        raise FetchFailed(f"{where}: no whole answer within {timeout_s:g} s") from None
    except h11.RemoteProtocolError:
        raise FetchFailed(f"{where}: does not speak HTTP") from None
    except OSError as error:
        raise FetchFailed(f"{where}: {error.strerror or 'unreachable'}") from None


async def _fetch(
    host: str, port: int, path: str, method: str, headers: dict[str, str], body: bytes, largest: int, source: str
) -> Fetched:
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0) if source else None)
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        if body:
            headers["Content-Length"] = str(len(body))
        all_headers = [("Host", f"{host}:{port}"), ("Connection", "close"), *headers.items()]
        writer.write(connection.send(h11.Request(method=method, target=path, headers=all_headers)) or b"")
        if body:
            writer.write(connection.send(h11.Data(data=body)) or b"")
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        return await _answer(connection, reader, largest, f"{host}:{port}")
    finally:
        writer.transport.abort()  # the answer is complete or worthless: no lingering close


async def _answer(connection: h11.Connection, reader: asyncio.StreamReader, largest: int, where: str) -> Fetched:
    status, headers, body = 0, {}, bytearray()
    informational = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(BLOCK))
        elif isinstance(event, h11.InformationalResponse):
            informational += 1
            if informational > 8:
                raise FetchFailed(f"{where}: never comes to its answer")
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > largest:
                raise FetchFailed(f"{where}: answer larger than {largest} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Fetched(status, headers, bytes(body))
        else:
            raise FetchFailed(f"{where}: closed the connection without an answer")
