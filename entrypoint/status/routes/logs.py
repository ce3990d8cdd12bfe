"""`/logs`: which there are, the last lines of one, and following it. `/login`: the token by a form."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from html import escape
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from core.mask import mask
from entrypoint.status.access import COOKIE_S, Waits
from entrypoint.status.answers import HEADERS, json_answer
from entrypoint.status.context import Context
from entrypoint.status.reading import Lines, Outside, Root, last_lines, lines_from, opened, walk
from entrypoint.status.roots import roots

TAIL, MOST_TAIL = 200, 5000
WINDOW = 1024**2
LONGEST_LINE = 8 * 1024
FOLLOWERS = 16
FOLLOW_S, LOOK_S, ALIVE_S = 3600.0, 0.5, 15.0
MOST_LISTED = 500


def routes(context: Context) -> list[BaseRoute]:
    """/logs, /logs/<file>[?tail=N][&follow=1], /login, /logout."""
    followers = asyncio.Semaphore(FOLLOWERS)

    async def listing(request: Request) -> Response:
        refused = _refused(context, request)
        if refused is not None:
            return refused
        try:
            rows = await asyncio.to_thread(_listing, _home(context))
        except Outside as error:
            return json_answer({"error": str(error)}, 404)
        if "text/html" not in request.headers.get("accept", ""):
            return json_answer({"logs": rows})
        lines = "".join(
            f'<tr><td><a href="/logs/{escape(_quoted(row["name"]), quote=True)}">{escape(row["name"])}</a></td>'
            f"<td>{row['bytes']}</td><td>{_when(row['modified'])}</td></tr>"
            for row in rows
        )
        head = "<tr><th>File</th><th>Bytes</th><th>Last write</th></tr>"
        leave = '<form method="post" action="/logout"><button>Forget the token here</button></form>'
        return _page("Logs", f"<table>{head}{lines}</table>{leave}")

    async def one(request: Request) -> Response:
        refused = _refused(context, request)
        if refused is not None:
            return refused
        name = request.path_params["name"]
        tail = request.query_params.get("tail", str(TAIL))
        if not (tail.isascii() and tail.isdigit() and len(tail) < 6 and 1 <= int(tail) <= MOST_TAIL):
            return json_answer({"error": f"tail: 1 to {MOST_TAIL}"}, 400)
        try:
            found = await asyncio.to_thread(_tail, context, name, int(tail))
        except Outside as error:
            return json_answer({"error": str(error)}, 404)
        text = "".join(f"{line}\n" for line in found.lines)
        if request.query_params.get("follow") != "1":
            return _text(text)
        if followers.locked():
            return json_answer({"error": f"{FOLLOWERS} follow a log already"}, 503, {"Retry-After": "10"})
        return StreamingResponse(
            _followed(context, name, text, found.end, followers),
            media_type="text/plain; charset=utf-8",
            headers=HEADERS,
        )

    async def login(request: Request) -> Response:
        if request.method in ("GET", "HEAD"):
            return _form(context)
        if request.headers.get("origin") is None:  # every browser sends it with a form; the guard has compared it
            return json_answer({"error": "a form of this page only; programs send Authorization: Bearer"}, 403)
        try:
            fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=4)
        except ValueError:
            fields = {}
        address = request.client.host if request.client else ""
        try:
            right = context.access.matches(fields.get("token", [""])[0], address)
        except Waits as error:
            return _page("Wait", f"<p>{escape(str(error))}</p>", 429)
        if not right:
            return _form(context, "That is not the token.", 403)
        answer = RedirectResponse("/logs", 303, headers=HEADERS)
        answer.set_cookie(
            context.access.cookie, context.access.make_cookie(), max_age=COOKIE_S, httponly=True, samesite="strict"
        )
        return answer

    async def logout(request: Request) -> Response:
        del request
        answer = RedirectResponse("/", 303, headers=HEADERS)
        answer.delete_cookie(context.access.cookie, httponly=True, samesite="strict")
        return answer

    return [
        Route("/logs", listing),
        Route("/logs/{name:path}", one),
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


def may_read(context: Context, request: Request) -> bool:
    """True when this request may see what is in files: the token, or a cookie made from it. Raises Waits."""
    given = request.headers.get("authorization")
    if given is not None:
        return context.access.bearer(given, request.client.host if request.client else "")
    return context.access.cookie_holds(request.cookies.get(context.access.cookie, ""))


def _refused(context: Context, request: Request) -> Response | None:
    try:
        if may_read(context, request):
            return None
    except Waits as error:
        return json_answer({"error": str(error)}, 429)
    if "text/html" in request.headers.get("accept", ""):
        return _form(context, "", 401)
    if context.access.token is None:
        return json_answer({"error": context.access.how}, 403)
    said = context.access.wrong if "authorization" in request.headers else context.access.how
    return json_answer({"error": said}, 401, {"WWW-Authenticate": "Bearer"})


def _home(context: Context) -> Root:
    if context.boot is None:
        raise Outside("this box is not booting")
    return roots(context.boot)[0]


def _listing(home: Root) -> list[dict[str, Any]]:
    with opened([home], "", folder=True) as descriptor:
        found: list[dict[str, Any]] = []
        for entry, _ in walk(descriptor, "", most=20_000):
            name = entry.path.lstrip("/").encode(errors="replace").decode()
            found.append({"name": name, "bytes": entry.size, "modified": round(entry.modified)})
        return sorted(found, key=lambda row: -row["modified"])[:MOST_LISTED]


def _tail(context: Context, name: str, count: int) -> Lines:
    with opened([_home(context)], name.lstrip("/")) as descriptor:
        return _masked(context, last_lines(descriptor, WINDOW, count))


def _masked(context: Context, found: Lines) -> Lines:
    from entrypoint.status.mcp.tool import secrets_of

    secrets = secrets_of(context)
    lines = tuple(mask(line, secrets)[:LONGEST_LINE] for line in found.lines)
    return Lines(lines, found.lengths, found.start, found.end, found.size)


async def _followed(
    context: Context, name: str, first: str, offset: int, followers: asyncio.Semaphore
) -> AsyncIterator[bytes]:
    """What there is, then whole new lines as they come; begins again when the file does. Ends after FOLLOW_S."""
    async with followers:
        yield first.encode(errors="replace")
        until, said = time.monotonic() + FOLLOW_S, time.monotonic()
        inode = 0
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            try:
                inode, found = await asyncio.to_thread(_news, context, name, inode, offset)
            except Outside:
                continue  # between two files
            offset = found.end
            if found.lines:
                yield "".join(f"{line}\n" for line in found.lines).encode(errors="replace")
                said = time.monotonic()
            elif time.monotonic() - said > ALIVE_S:
                yield b"\n"  # so that a reader who has gone is noticed
                said = time.monotonic()


def _news(context: Context, name: str, inode: int, offset: int) -> tuple[int, Lines]:
    with opened([_home(context)], name.lstrip("/")) as descriptor:
        now = os.fstat(descriptor)
        again = (inode and now.st_ino != inode) or now.st_size < offset
        found = lines_from(descriptor, 0 if again else offset, WINDOW, 10**6, unfinished=False)
        return now.st_ino, _masked(context, found)


def _form(context: Context, said: str = "", status: int = 200) -> Response:
    if context.access.token is None:
        return _page("Reading is off", f"<p>{escape(context.access.how)}</p>", 403)
    field = (
        '<form method="post" action="/login"><label>STATUS_TOKEN '
        '<input type="password" name="token" autocomplete="current-password" required autofocus></label>'
        "<button>Open</button></form>"
    )
    return _page("Enter the token", f"<p role='alert'>{escape(said)}</p>{field}" if said else field, status)


def _page(title: str, body: str, status: int = 200) -> Response:
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="/page.css"><main><h1>{escape(title)}</h1>{body}'
        '<p><a href="/">Status</a></p></main></html>'
    )
    return HTMLResponse(text, status, headers=HEADERS)


def _text(text: str) -> Response:
    return Response(text.encode(errors="replace"), media_type="text/plain; charset=utf-8", headers=HEADERS)


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name)


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + " UTC"
