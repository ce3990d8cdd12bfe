"""Ask one member for its view: one nonce, one connection, one answer, judged before it counts."""

from __future__ import annotations

import asyncio
import secrets
import time

from group.get import get
from group.signing import NotVerified, verify
from group.view import LARGEST, View


class Refused(Exception):
    """Nobody listens on that port: the kit there is gone or not yet up."""


class Silent(Exception):
    """No answer in time, or the network did not carry the question."""


def boottime() -> float:
    """Seconds since boot, suspend included: the one clock of all deadlines (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def ask(
    host: str, port: int, group: str, secret: str | None, source: str, timeout_s: float, news: bool = False
) -> View:
    """The verified view of the member at `host` (an IPv4 address), asked from our address `source` ("": any).

    `news`: we have changed since it last asked us, so it is to ask back at once.

    Raises Refused, Silent, or NotVerified with the reason.
    """
    nonce = secrets.token_hex(16)
    path = f"/member.json?nonce={nonce}{'&news=1' if news else ''}"
    try:
        async with asyncio.timeout(timeout_s):
            text = await get(host, port, path, largest=LARGEST, source=source, wrong=_stranger)
    except ConnectionRefusedError:
        raise Refused(f"{host}:{port} refuses connections") from None
    except (TimeoutError, OSError) as error:
        raise Silent(f"{host}:{port}: {error or 'no answer'}") from None
    return verify(text, group, host, nonce, secret)


def _stranger(text: str) -> NotVerified:
    return NotVerified(f"{text}: not a glm53 box?")
