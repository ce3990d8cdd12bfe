"""The page's HTTP application: HTML for people, JSON for the other boxes and for tools. Read-only; decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from entrypoint.status.answers import json_answer
from entrypoint.status.context import Context
from entrypoint.status.guard import guard
from entrypoint.status.routes import cluster, health, logs, mcp, member, memory, metrics, page

# One line a family of routes. What is heavy to import is imported by its handler, not by its module.
FAMILIES: tuple[Callable[[Context], list[BaseRoute]], ...] = (
    page.routes,
    health.routes,
    cluster.routes,
    memory.routes,
    metrics.routes,
    member.routes,
    logs.routes,
    mcp.routes,
)
# Outermost first.
GUARDS: tuple[Callable[[Context], Middleware], ...] = (guard,)


def create_app(context: Context) -> Starlette:
    """The application: every family's routes behind every guard; an unknown path is 404 with what there is."""
    routes = [route for family in FAMILIES for route in family(context)]
    context.paths = tuple(str(getattr(route, "path", "")).replace(":path}", "}") for route in routes)

    async def not_found(request: Request, error: Exception) -> Response:
        del error
        return json_answer({"error": f"{request.url.path}: not here; try {', '.join(context.paths)}"}, 404)

    middleware = [guard(context) for guard in GUARDS]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={404: not_found})
