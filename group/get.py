"""One bounded GET, of another box or of this box's engine: a connection of its own, read to its end within a size.

Written on asyncio's streams: a poll must tell a refused connection (strong evidence: that kit is gone) from
silence (weak), and four boxes that boot ask each other some hundred times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BLOCK = 65536  # bytes read at once


async def get(
    host: str, port: int, path: str, *, largest: int, source: str = "", wrong: Callable[[str], Exception] = ValueError
) -> bytes:
    """The body of `path` at `host` (an IPv4 address), asked from our address `source` ("": any).

    largest  bytes of the whole answer, head and body
    wrong    makes the caller's own error of a text: more bytes than that, no HTTP, a status other than 200

    Raises OSError (ConnectionRefusedError among them) when the network does not carry it. Has no time limit: the
    caller sets one around it.
    """
    reader, writer = await asyncio.open_connection(host, port, local_addr=(source, 0) if source else None)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = bytearray()
        while chunk := await reader.read(BLOCK):
            answer += chunk
            if len(answer) > largest:
                raise wrong(f"answer larger than {largest} bytes")
    finally:
        writer.transport.abort()  # the answer is complete or worthless: no lingering close
    head, found, body = bytes(answer).partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if not found or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise wrong("does not speak HTTP")
    if status[1] != b"200":
        raise wrong(f"answered HTTP {status[1].decode(errors='replace')[:3]}")
    return body
