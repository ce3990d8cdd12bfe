"""The page's server sleeps while nobody asks, ends when told to, and dates its answers."""

from __future__ import annotations

import asyncio
import email.utils
import socket
import time

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from entrypoint.status.guard import Guard
from entrypoint.status.server import Server


async def hello(request: Request) -> PlainTextResponse:
    del request
    return PlainTextResponse("hello")


def made() -> Server:
    names = lambda: ("localhost",)  # noqa: E731
    return Server(Starlette(routes=[Route("/", hello)], middleware=[Middleware(Guard, names=names)]))


def test_it_answers_with_the_date_and_ends_when_told() -> None:
    async def scene() -> httpx.Response:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = made()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
            server.end()
            await asyncio.wait_for(serving, 10)
        return answer

    answer = asyncio.run(scene())
    assert answer.text == "hello"
    said = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert abs(time.time() - said) < 60
    assert len(answer.headers.get_list("date")) == 1


def test_nothing_of_it_wakes_while_nobody_asks() -> None:
    """uvicorn's own loop wakes ten times a second, which an idle kit's processor time shows."""

    async def scene() -> list[asyncio.TimerHandle]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = made()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            timers = list(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]
            server.end()
            await serving
        return timers

    assert asyncio.run(scene()) == []
