"""`/member.json`: this box's view for another box; the answer is bound to its nonce and to the address it dialled."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import HEADERS, json_answer
from entrypoint.status.context import Context

NONCE = re.compile(r"[0-9a-f]{32}")


def routes(context: Context) -> list[BaseRoute]:
    """/member.json?nonce=<32 hex digits>[&news=1]: with news the box that asks has changed and is asked back."""

    async def member(request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        if not NONCE.fullmatch(nonce):
            return json_answer({"error": "nonce: 32 hex digits, e.g. /member.json?nonce=" + "0" * 32}, 400)
        server = request.scope.get("server") or ("", 0)
        asker = request.client.host if request.client is not None else ""
        answer = context.member_answer(nonce, str(server[0]), asker, "news" in request.query_params)
        return Response(answer, media_type="application/json", headers=HEADERS)

    return [Route("/member.json", member)]
