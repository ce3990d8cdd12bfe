"""Ask one member for its view: one nonce, one connection, one answer, judged before it counts.

Written on asyncio's streams: a poll must tell a refused connection (strong evidence: that kit is gone) from
silence (weak), and four boxes that boot ask each other some hundred times a second.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from group.signing import NotVerified, verify
from group.view import LARGEST, View


class Refused(Exception):
    """Nobody listens on that port: the kit there is gone or not yet up."""


class Silent(Exception):
    """No answer in time, or the network did not carry the question."""


def boottime() -> float:
    """Seconds since boot, suspend included: the one clock of all deadlines (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def ask(host: str, port: int, group: str, secret: str | None, source: str, timeout_s: float) -> View:
    """The verified view of the member at `host` (an IPv4 address), asked from our address `source` ("": any).

    Raises Refused, Silent, or NotVerified with the reason.
    """
    nonce = secrets.token_hex(16)
    try:
        async with asyncio.timeout(timeout_s):
            text = await _get(host, port, f"/member.json?nonce={nonce}", source)
    except ConnectionRefusedError:
        raise Refused(f"{host}:{port} refuses connections") from None
    except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
        raise Silent(f"{host}:{port}: {error or 'no answer'}") from None
    return verify(text, group, host, nonce, secret)


async def _get(host: str, port: int, path: str, source: str) -> bytes:
    local = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(host, port, limit=LARGEST, local_addr=local)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = bytearray()
        while chunk := await reader.read(65536):
            answer += chunk
            if len(answer) > LARGEST:
                raise NotVerified(f"answer larger than {LARGEST} bytes")
    finally:
        writer.transport.abort()  # the answer is complete or worthless: no lingering close
    head, found, body = bytes(answer).partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if not found or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise NotVerified("does not speak HTTP: not a glm53 box?")
    if status[1] != b"200":
        raise NotVerified(f"answered HTTP {status[1].decode(errors='replace')[:3]}: not a glm53 box?")
    return body
