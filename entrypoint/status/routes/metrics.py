"""`/metrics`: this box for Prometheus. vLLM's own metrics are at the door (API_PORT), they are not repeated here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import HEADERS
from entrypoint.status.context import Context


def routes(context: Context) -> list[BaseRoute]:
    """/metrics in the text format, from a registry of its own."""

    async def metrics(request: Request) -> Response:
        del request
        from entrypoint.status.prometheus import CONTENT_TYPE, text  # here: most boxes are never scraped

        return Response(text(context.board.status()), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    return [Route("/metrics", metrics)]
