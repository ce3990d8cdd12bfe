"""`/cluster.json`: all boxes as this one sees them; `/schema/NAME.json`: the shapes of everything here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import json_answer
from entrypoint.status.context import Context
from entrypoint.status.shape import schema

SCHEMAS = ("status", "cluster", "memory", "health")


def routes(context: Context) -> list[BaseRoute]:
    """/cluster.json: 200 when healthy, else 503; the body is whole either way. /schema/{name}.json."""

    async def cluster(request: Request) -> Response:
        del request
        found = await context.look()
        return json_answer(found, 200 if found["healthy"] else 503)

    async def shape(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in SCHEMAS:
            return json_answer({"error": f"no schema of that name; there are {', '.join(SCHEMAS)}"}, 404)
        return json_answer(schema(name))

    return [Route("/cluster.json", cluster), Route("/schema/{name}.json", shape)]
