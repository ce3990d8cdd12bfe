"""`/mcp`: who asks, then the plain form or the SDK's; `/nonce.json` for boxes that sign their calls."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from entrypoint.status.access import Waits
from entrypoint.status.answers import HEADERS, json_answer
from entrypoint.status.context import Context
from entrypoint.status.signed import ANSWER_HEADER, CALL_HEADER, answer_code, judge_call

if TYPE_CHECKING:
    from entrypoint.status.mcp.sdk import Sdk
    from entrypoint.status.mcp.table import Tools

HANDSHAKE = frozenset({"initialize", "notifications/initialized", "server/discover"})
SESSION_HEADERS = ("mcp-protocol-version", "mcp-session-id")


def routes(context: Context) -> list[BaseRoute]:
    """/mcp takes POST; its modules are loaded by the first one."""

    async def nonce(request: Request) -> Response:
        del request
        if not _secret(context):
            return json_answer({"error": "GROUP_SECRET is not set here: calls between boxes are not signed"}, 404)
        return json_answer({"nonce": context.nonces.issue()})

    return [Route("/mcp", Endpoint(context)), Route("/nonce.json", nonce)]


class Endpoint:
    """The ASGI application at /mcp."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._tools: Tools | None = None
        self._sdk: Sdk | None = None
        self._loading = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        answer = await self._answer(request, body, send)
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, request: Request, body: bytes, send: Send) -> Response | None:
        """The answer, or None when the SDK has sent its own."""
        if request.method != "POST":
            return json_answer(
                {"error": "POST a JSON-RPC request; nothing is pushed from here"}, 405, {"Allow": "POST"}
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # what a form of another site cannot send
            return json_answer({"error": "Content-Type: application/json"}, 415)
        signed = request.headers.get(CALL_HEADER)
        if signed is not None:
            return await self._member(request, body, signed)
        reader = False
        given = request.headers.get("authorization")
        if given is not None:
            address = request.client.host if request.client else ""
            try:
                reader = self.context.access.bearer(given, address)
            except Waits as error:
                return json_answer({"error": str(error)}, 429)
            if not reader:
                return json_answer({"error": self.context.access.wrong}, 401, {"WWW-Authenticate": "Bearer"})
        return await self._anybody(request, body, reader, send)

    async def _member(self, request: Request, body: bytes, signed: str) -> Response:
        """A call of another box, proved or refused; its answer is signed too."""
        secret, group = _secret(self.context), _group(self.context)
        dialled = str((request.scope.get("server") or ("", 0))[0])
        code = None
        if secret:
            code = judge_call(signed, self.context.nonces, secret, group, dialled, "POST", "/mcp", body)
        if code is None:
            return json_answer({"error": "not signed by a box of this group, or for another call"}, 403)
        status, text = await self._plain(body, reader=True, member=True)
        answer = _json(status, text)
        answer.headers[ANSWER_HEADER] = answer_code(secret, group, code, status, text)
        return answer

    async def _anybody(self, request: Request, body: bytes, reader: bool, send: Send) -> Response | None:
        from entrypoint.status.mcp.plain import NotJson, parse

        try:
            told: Any = parse(body)
        except NotJson:
            told = None
        method = told.get("method") if isinstance(told, dict) else None
        handshake = isinstance(method, str) and method in HANDSHAKE
        if handshake or any(name in request.headers for name in SESSION_HEADERS):
            await self._with_sdk(request, body, reader, send)
            return None
        return _json(*await self._plain(body, reader=reader))

    async def _plain(self, body: bytes, *, reader: bool, member: bool = False) -> tuple[int, bytes]:
        from entrypoint.status.mcp import plain

        try:
            told = plain.parse(body)
        except plain.NotJson as error:
            return 400, plain.error(None, plain.PARSE, str(error))
        return await plain.answer(told, self.tools, reader=reader, member=member)

    @property
    def tools(self) -> Tools:
        """The table, made once."""
        from entrypoint.status.mcp.table import Tools

        if self._tools is None:
            self._tools = Tools(self.context)
        return self._tools

    async def _with_sdk(self, request: Request, body: bytes, reader: bool, send: Send) -> None:
        sdk = await self._load()
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return waiting.pop() if waiting else await request.receive()

        await sdk.handle({**request.scope, "glm53.reader": reader}, replay, send)

    async def _load(self) -> Sdk:
        """The SDK, imported in a thread by the first client: it takes seconds, and the page goes on."""
        async with self._loading:
            if self._sdk is None:
                module = await asyncio.to_thread(import_module, "entrypoint.status.mcp.sdk")
                boot = self.context.boot
                name = f"{boot.text('SERVICE_NAME', 'glm53')} ({boot.hostname})" if boot is not None else "glm53"
                self._sdk = module.Sdk(self.tools, name, boot.version if boot is not None else "")
                self._running = asyncio.create_task(self._sdk.run())
                if boot is not None:
                    boot.tasks.append(self._running)
            assert self._sdk is not None
            return self._sdk


def _json(status: int, text: bytes) -> Response:
    return Response(text, status_code=status, media_type="application/json", headers=HEADERS)


def _secret(context: Context) -> str:
    settings = context.boot.settings if context.boot is not None else None
    return settings.text("GROUP_SECRET") if settings is not None else ""


def _group(context: Context) -> str:
    return context.boot.text("GROUP_NAME", "glm53") if context.boot is not None else "glm53"
