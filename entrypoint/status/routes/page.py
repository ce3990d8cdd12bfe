"""`/`: the page for people, complete without JavaScript; `/events` keeps it live; its style and script."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from entrypoint.status import render
from entrypoint.status.answers import HEADERS, json_answer
from entrypoint.status.context import Context
from entrypoint.status.live import Live

KEPT_S = 0.5  # a page rendered so shortly ago is given again: twenty readers a second cost as much as two
LIVE_S = 1.0  # between two renderings for those who look; twice that while serving
FILES = {"/page.css": "text/css", "/page.js": "text/javascript"}
# In the footer, where this application has them.
LINKS = ("/status.json", "/cluster.json", "/memory", "/metrics", "/healthz", "/logs")


def routes(context: Context) -> list[BaseRoute]:
    """/ (?hold=1 leaves the refresh out and opens all), /events, /page.css, /page.js."""
    kept: dict[bool, tuple[float, str]] = {}

    async def page(request: Request) -> Response:
        hold = request.query_params.get("hold") == "1"
        at, text = kept.get(hold, (0.0, ""))
        if time.monotonic() - at > KEPT_S:
            cluster = await context.look()
            links = [path for path in LINKS if path in context.paths]
            text = render.page(context.board.status(), cluster, links, hold)
            kept[hold] = (time.monotonic(), text)
        return HTMLResponse(text, headers=HEADERS)

    async def sections() -> tuple[str, dict[str, str], float]:
        cluster = await context.look()
        title, html = render.sections(context.board.status(), cluster)
        return title, html, 2 * LIVE_S if cluster["healthy"] else LIVE_S

    live = Live(sections)

    async def events(request: Request) -> Response:
        del request
        if live.full:
            return json_answer({"error": "too many readers: the page refreshes itself without JavaScript"}, 503)
        return StreamingResponse(_bytes(live.subscribe()), media_type="text/event-stream", headers=HEADERS)

    async def file(request: Request) -> Response:
        path = request.url.path
        headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(render.static(path.removeprefix("/")), media_type=FILES[path], headers=headers)

    return [Route("/", page), Route("/events", events), *(Route(path, file) for path in FILES)]


async def _bytes(texts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for text in texts:
        yield text.encode()
