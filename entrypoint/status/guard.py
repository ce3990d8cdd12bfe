"""What every request passes first: Host, Origin, rate, body. Pure ASGI, so that streams stay streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoint.status.access import host_allowed, origin_allowed, own_names
from entrypoint.status.context import Context
from entrypoint.status.limits import Buckets

BODY_S = 10.0
BODIES_AT_ONCE = 8
LARGEST_BODY = {"/mcp": 64 * 1024, "/login": 4 * 1024, "/logout": 4 * 1024}
# The boxes ask each other up to fifty times a second when something changes; people and tools do not.
MEMBER_PATHS = frozenset({"/member.json"})
RATE, BURST = 50.0, 200.0
MEMBER_RATE, MEMBER_BURST = 300.0, 600.0
# h11 looks at the size of a head only while it is not whole: one that comes in a single packet may have 64 KiB.
LARGEST_HEAD = 16 * 1024
METHODS = frozenset({"GET", "HEAD", "POST"})
SAFETY = (
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


class _Answered(Exception):
    """The request ends here: status and what to say."""

    def __init__(self, status: int, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.text, self.wait_s = status, text, wait_s


class Guard:
    """The middleware. `names()`: host names this box answers to, lower case."""

    def __init__(self, app: ASGIApp, names: Callable[[], Collection[str]]) -> None:
        self.app, self.names = app, names
        self.people = Buckets(RATE, BURST)
        self.members = Buckets(MEMBER_RATE, MEMBER_BURST)
        self.bodies = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message.get("headers", ())}
                ours = ((b"date", formatdate(usegmt=True).encode()), *SAFETY)
                more = [pair for pair in ours if pair[0] not in have]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            self._judge(scope)
            receive = await self._body(scope, receive)
        except _Answered as answer:
            await _refuse(answer, safely)
            return
        await self.app(scope, receive, safely)

    def _judge(self, scope: Scope) -> None:
        head = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if head + sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEAD:
            raise _Answered(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"A head of at most {LARGEST_HEAD} bytes.")
        headers = _single(scope, b"host", b"origin")
        host = headers[b"host"]
        if not host_allowed(host, self.names()):
            text = "This host name is not this box's. Use its address, or add the name to STATUS_HOSTS."
            raise _Answered(HTTPStatus.MISDIRECTED_REQUEST, text)
        if not origin_allowed(headers[b"origin"], host):
            raise _Answered(HTTPStatus.FORBIDDEN, "Pages of other sites may not ask this box.")
        if scope["method"] not in METHODS:
            raise _Answered(HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD or POST.")
        buckets = self.members if scope["path"] in MEMBER_PATHS else self.people
        client = scope.get("client")
        wait = buckets.take(client[0] if client else "", time.monotonic())
        if wait:
            raise _Answered(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests from this address.", wait)

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the whole body, within its size and time, and hand it on in one piece."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" not in headers and length.strip(b"0") == b"":
            return receive
        largest = LARGEST_BODY.get(scope["path"], 0) if scope["method"] == "POST" else 0
        if not largest:
            raise _Answered(413, "No body is taken here.")
        if length.isdigit() and int(length[:20]) > largest:
            raise _Answered(413, f"At most {largest} bytes.")
        if self.bodies >= BODIES_AT_ONCE:
            raise _Answered(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests at once.", 1.0)
        self.bodies += 1
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read(receive, largest)
        except TimeoutError:
            raise _Answered(HTTPStatus.REQUEST_TIMEOUT, f"The body took longer than {BODY_S:g} s.") from None
        finally:
            self.bodies -= 1
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        return replay


async def _read(receive: Receive, largest: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Answered(HTTPStatus.BAD_REQUEST, "The body ended early.")
        body += message.get("body", b"")
        if len(body) > largest:
            raise _Answered(413, f"At most {largest} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


def _single(scope: Scope, *wanted: bytes) -> dict[bytes, str | None]:
    """Headers that may come once; a second one is an attempt to be read in two ways."""
    found: dict[bytes, str | None] = dict.fromkeys(wanted)
    for name, value in scope["headers"]:
        if name in found:
            if found[name] is not None:
                raise _Answered(HTTPStatus.BAD_REQUEST, f"{name.decode()}: twice.")
            found[name] = value.decode("latin-1")
    return found


async def _refuse(answer: _Answered, send: Send) -> None:
    body = json.dumps({"error": answer.text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),  # what is left of the request is not read
    ]
    if answer.wait_s:
        headers.append((b"retry-after", str(int(answer.wait_s) + 1).encode()))
    start: dict[str, Any] = {"type": "http.response.start", "status": int(answer.status), "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


def guard(context: Context) -> Middleware:
    """For entrypoint/status/app.py's table."""

    def names() -> Collection[str]:
        boot = context.boot
        if boot is None:
            return own_names("", "")
        # PEERS is often one list for all boxes, this one among them: its names are the operator's own.
        given = (boot.text(name, "") for name in ("STATUS_HOSTS", "HEAD_HOST", "PEERS"))
        return own_names(boot.hostname, ",".join(given))

    return Middleware(Guard, names=names)
