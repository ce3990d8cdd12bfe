"""`/`: the page for people, complete without JavaScript."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from entrypoint.status.answers import HEADERS
from entrypoint.status.context import Context
from entrypoint.status.view import view

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent.parent


def routes(context: Context) -> list[BaseRoute]:
    """The page; ?hold=1 leaves the refresh out, so that one can read in peace."""

    async def page(request: Request) -> Response:
        text = _template().render(view(context.board.status(), hold=request.query_params.get("hold") == "1"))
        return HTMLResponse(text, headers=HEADERS)

    return [Route("/", page)]


@cache
def _template() -> jinja2.Template:
    import jinja2  # here: a box nobody looks at does not pay for it

    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["json"] = lambda value: json.dumps(value, sort_keys=True)
    return environment.get_template("page.html")
