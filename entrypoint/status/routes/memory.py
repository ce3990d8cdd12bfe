"""`/memory`: where this box's memory is, against the plan's budget."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import json_answer
from entrypoint.status.context import Context


def routes(context: Context) -> list[BaseRoute]:
    """/memory, always 200."""

    async def memory(request: Request) -> Response:
        del request
        return json_answer(context.board.status()["memory"])

    return [Route("/memory", memory)]
