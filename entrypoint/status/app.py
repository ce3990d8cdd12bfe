"""The page's HTTP application: HTML for people, JSON for the other boxes and for tools. Read-only; decides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from entrypoint.status.view import view

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
NONCE = re.compile(r"[0-9a-f]{32}")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}

MemberAnswer = Callable[[str, str], bytes]
Handler = Callable[[Request], Awaitable[Response]]


class Board(Protocol):
    """What the page reads; entrypoint/board.py is it."""

    def status(self) -> dict[str, Any]:
        """All of /status.json."""
        ...


def create_app(board: Board, member_answer: MemberAnswer) -> Starlette:
    """The application. `member_answer(nonce, address dialled)` gives the bytes of /member.json."""

    async def page(request: Request) -> Response:
        """The page; ?hold=1 leaves the refresh out, so that one can read in peace."""
        text = _template().render(view(board.status(), hold=request.query_params.get("hold") == "1"))
        return HTMLResponse(text, headers=HEADERS)

    async def status(request: Request) -> Response:
        """Everything this box knows of itself and the others."""
        del request
        return _json(board.status())

    async def healthz(request: Request) -> Response:
        """200 when healthy, else 503, with the reason."""
        del request
        known = board.status()
        body = {name: known[name] for name in ("healthy", "stage", "sentence")}
        return _json(body, 200 if known["healthy"] else 503)

    async def member(request: Request) -> Response:
        """This box's view for another box; the answer is bound to its nonce and to the address it dialled."""
        nonce = request.query_params.get("nonce", "")
        if not NONCE.fullmatch(nonce):
            return _json({"error": "nonce: 32 hex digits, e.g. /member.json?nonce=" + "0" * 32}, 400)
        server = request.scope.get("server") or ("", 0)
        return Response(member_answer(nonce, str(server[0])), media_type="application/json", headers=HEADERS)

    async def not_found(request: Request, error: Exception) -> Response:
        del error
        return _json({"error": f"{request.url.path}: not here; try /, /status.json, /healthz"}, 404)

    routes = [
        Route("/", page),
        Route("/status.json", status),
        Route("/healthz", healthz),
        Route("/member.json", member),
    ]
    return Starlette(routes=routes, exception_handlers={404: not_found})


def _json(body: Any, status: int = 200) -> Response:
    return JSONResponse(body, status_code=status, headers=HEADERS)


@cache
def _template() -> jinja2.Template:
    import jinja2  # here: a box nobody looks at does not pay for it

    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["json"] = lambda value: json.dumps(value, sort_keys=True)
    return environment.get_template("page.html")
