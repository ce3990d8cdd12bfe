"""The bounded GET, over real sockets: what is no whole answer of HTTP 200 is the caller's own error."""

from __future__ import annotations

import asyncio
import socket

import pytest

from group.get import get

LARGEST = 1000
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wrong(Exception):
    pass


def got(answer: bytes) -> tuple[bytes, bytes]:
    """(the body, the request) of one GET that is answered with these bytes."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def run() -> bytes:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, asyncio.timeout(10):
            port = server.sockets[0].getsockname()[1]
            return await get("127.0.0.1", port, "/a.json?b=1", largest=LARGEST, source="127.0.0.1", wrong=Wrong)

    return asyncio.run(run()), asked


def test_the_body_comes_whole_up_to_the_limit() -> None:
    whole = b"x" * (LARGEST - len(HEAD))
    body, asked = got(HEAD + whole)
    assert body == whole
    assert asked.startswith(b"GET /a.json?b=1 HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HEAD + b"x" * (LARGEST - len(HEAD) + 1), "answer larger than 1000 bytes"),
        (b"", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nno", "answered HTTP 404"),
        (b"HTTP/1.1 \xff\xfe long\r\n\r\n", "answered HTTP"),
    ],
)
def test_anything_else_is_the_callers_error(answer: bytes, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        got(answer)


def test_a_refused_connection_is_told_apart() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there, and nobody can take it meanwhile
        port = taken.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            asyncio.run(get("127.0.0.1", port, "/", largest=LARGEST))
