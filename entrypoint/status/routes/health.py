"""`/status.json` and `/healthz`: this box in JSON, for tools and for Docker's health check."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import json_answer
from entrypoint.status.context import Context


def routes(context: Context) -> list[BaseRoute]:
    """/status.json, and /healthz: 200 when healthy, else 503, with the reason."""

    async def status(request: Request) -> Response:
        del request
        return json_answer(context.board.status())

    async def healthz(request: Request) -> Response:
        del request
        known = context.board.status()
        body = {name: known[name] for name in ("healthy", "stage", "sentence")}
        return json_answer(body, 200 if known["healthy"] else 503)

    return [Route("/status.json", status), Route("/healthz", healthz)]
