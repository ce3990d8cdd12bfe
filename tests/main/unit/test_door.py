"""The door: bytes both ways and nothing else, also when somebody waits, leaves, hurries or dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from core.refusal import Refusal
from entrypoint.door import Door, free_port, who_listens

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.anyio
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Way:
    """What the door asks for its target: settable."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target

    def __call__(self) -> tuple[str, int] | None:
        return self.target


@contextlib.asynccontextmanager
async def opened(way: Way, hold_s: float = 5.0, host: str = "127.0.0.1") -> AsyncIterator[Door]:
    door = Door(host, 0, way, hold_s, lambda: "launch")
    await door.start()
    try:
        yield door
    finally:
        await door.close()


@contextlib.asynccontextmanager
async def engine(handler: Handler) -> AsyncIterator[tuple[str, int]]:
    async def close_after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(close_after, "127.0.0.1", 0)
    try:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def dial(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", door.port)


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not come about in time"
        await asyncio.sleep(0.01)


async def echo_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when the client has said that it sends no more."""
    data = await reader.read()
    writer.write(data[::-1])


async def test_half_close_is_kept_and_bytes_arrive_whole() -> None:
    async with engine(echo_all) as target, opened(Way(target)) as door:
        reader, writer = await dial(door)
        body = os.urandom(3_000_000)
        writer.write(body)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == body[::-1]
        writer.close()
        await until(lambda: door.open == 0)


async def test_many_at_once_are_not_mixed_up() -> None:
    async with engine(echo_all) as target, opened(Way(target)) as door:

        async def one(number: int) -> bool:
            reader, writer = await dial(door)
            body = f"{number}|".encode() * 5000
            writer.write(body)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer == body[::-1]

        assert all(await asyncio.gather(*(one(number) for number in range(200))))
        await until(lambda: door.open == 0)


async def test_a_request_while_nothing_serves_is_held_and_answered() -> None:
    way = Way()
    async with engine(echo_all) as target, opened(way) as door:
        reader, writer = await dial(door)
        writer.write(b"hello")
        writer.write_eof()
        await until(lambda: door.held == 1)
        way.target = target
        door.changed()
        assert await asyncio.wait_for(reader.read(), 30) == b"olleh"
        writer.close()


async def test_a_held_request_also_survives_an_engine_that_does_not_listen_yet() -> None:
    way = Way(("127.0.0.1", free_port()))
    async with engine(echo_all) as target, opened(way) as door:
        reader, writer = await dial(door)
        writer.write(b"hello")
        writer.write_eof()
        await asyncio.sleep(0.3)
        way.target = target  # nobody calls changed(): the door looks again by itself
        assert await asyncio.wait_for(reader.read(), 30) == b"olleh"
        writer.close()


async def test_a_big_held_request_waits_in_the_kernel_and_arrives_whole() -> None:
    way = Way()
    async with engine(echo_all) as target, opened(way) as door:
        reader, writer = await dial(door)
        body = os.urandom(20_000_000)
        writer.write(body)
        writer.write_eof()
        await until(lambda: door.held == 1)
        (connection,) = door._connections
        await asyncio.sleep(0.2)
        assert connection.client.kept_bytes < 1_000_000
        way.target = target
        door.changed()
        assert await asyncio.wait_for(reader.read(), 30) == body[::-1]
        writer.close()


async def test_who_waited_too_long_gets_503_with_the_stage() -> None:
    async with opened(Way(), hold_s=0.3) as door, httpx.AsyncClient() as client:
        began = time.monotonic()
        answer = await client.post(f"http://127.0.0.1:{door.port}/v1/chat/completions", json={"a": 1})
        assert time.monotonic() - began >= 0.3
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["stage"] == "launch"
        await until(lambda: door.open == 0)


async def test_503_reaches_a_client_that_is_still_sending() -> None:
    """Closing on unread bytes would be a reset, and the client would see that instead of the answer."""
    async with opened(Way(), hold_s=0.1) as door, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{door.port}/v1/completions", content=b"x" * 10_000_000)
        assert answer.status_code == 503


async def test_a_connection_without_a_word_is_not_answered() -> None:
    async with opened(Way(), hold_s=0.1) as door:
        reader, writer = await dial(door)
        await asyncio.sleep(0.4)
        assert door.open == 1
        assert door.held == 0
        writer.close()
        assert await reader.read() == b""
        await until(lambda: door.open == 0)


STREAM = """
import asyncio, os
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
import uvicorn

gone = 0
async def stream(request):
    async def events():
        global gone
        try:
            for number in range(int(request.query_params.get("n", 100))):
                yield f"data: {number}\\n\\n"
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            gone += 1
            raise
    return StreamingResponse(events(), media_type="text/event-stream")
async def size(request):
    return JSONResponse({"bytes": len(await request.body()), "port": request.client.port, "gone": gone})
app = Starlette(routes=[Route("/stream", stream), Route("/size", size, methods=["GET", "POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
"""


@contextlib.asynccontextmanager
async def http_engine() -> AsyncIterator[tuple[tuple[str, int], asyncio.subprocess.Process]]:
    """A real HTTP server in a process of its own, so that it can be killed."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STREAM, env={**os.environ, "PORT": str(port)})
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            await asyncio.sleep(0.05)
        yield ("127.0.0.1", port), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_server_sent_events_come_one_by_one() -> None:
    async with http_engine() as (target, _), opened(Way(target)) as door, httpx.AsyncClient() as client:
        seen: list[float] = []
        async with client.stream("GET", f"http://127.0.0.1:{door.port}/stream?n=25") as answer:
            async for line in answer.aiter_lines():
                if line:
                    seen.append(time.monotonic())
        assert len(seen) == 25
        assert seen[-1] - seen[0] > 0.4, "events were gathered up instead of passed on"


async def test_a_kept_connection_carries_many_requests() -> None:
    async with http_engine() as (target, _), opened(Way(target)) as door, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{door.port}/size"
        answers = [(await client.post(url, content=b"x" * size)).json() for size in (1, 2_000_000, 0, 70_000)]
        assert [answer["bytes"] for answer in answers] == [1, 2_000_000, 0, 70_000]
        assert len({answer["port"] for answer in answers}) == 1


async def test_a_client_that_leaves_ends_its_request_in_the_engine() -> None:
    async with http_engine() as (target, _), opened(Way(target)) as door, httpx.AsyncClient() as client:
        base = f"http://127.0.0.1:{door.port}"
        async with client.stream("GET", f"{base}/stream?n=100000") as answer:
            async for _line in answer.aiter_lines():
                break
        for _ in range(100):
            if (await client.get(f"{base}/size")).json()["gone"] == 1:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the engine went on generating for nobody")


@pytest.mark.parametrize("doors", [1, 2])
async def test_an_engine_that_dies_mid_stream_is_an_error_not_a_hang(doors: int) -> None:
    """Also through two doors: client, worker's door, head's door, engine."""
    async with http_engine() as (target, process), contextlib.AsyncExitStack() as stack, httpx.AsyncClient() as client:
        door = await stack.enter_async_context(opened(Way(target)))
        if doors == 2:
            door = await stack.enter_async_context(opened(Way(("127.0.0.1", door.port)), host="127.0.0.7"))

        async def read() -> None:
            async with client.stream("GET", f"http://{door.host}:{door.port}/stream?n=1000") as answer:
                async for line in answer.aiter_lines():
                    if line == "data: 5":
                        process.send_signal(signal.SIGKILL)

        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await read()
        await until(lambda: door.open == 0)


async def test_a_new_generation_ends_the_streams_of_the_old_one() -> None:
    """The old head may be a box without power: nothing but the door can end its clients' connections."""

    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await ended.wait()

    async with engine(silent) as target:
        way = Way(target)
        async with opened(way) as door:
            reader, writer = await dial(door)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"x\r\n")
            way.target = None
            door.changed()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 30)
            writer.close()
            ended.set()


async def test_a_slow_reader_slows_the_engine_and_not_the_box_s_memory() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(1)
        while sent < 200_000_000:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with engine(flood) as target, opened(Way(target)) as door:
        client = socket.create_connection(("127.0.0.1", door.port))
        client.sendall(b"x")
        await asyncio.sleep(0.5)
        stopped_at = sent
        await asyncio.sleep(0.3)
        assert sent == stopped_at < 50_000_000
        client.close()
        await until(lambda: door.open == 0)


async def test_closing_ends_held_requests_also_right_after_a_change() -> None:
    door = Door("127.0.0.1", 0, Way(), 900.0, lambda: "launch")
    await door.start()
    reader, writer = await dial(door)
    writer.write(b"hello")
    await until(lambda: door.held == 1)
    door.changed()
    await asyncio.wait_for(door.close(), 30)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_flood_is_refused_and_leaves_the_kit_its_files() -> None:
    async with engine(echo_all) as target, opened(Way(target)) as door, httpx.AsyncClient() as client:
        door._most = 20
        idle = [await dial(door) for _ in range(20)]
        answer = await client.get(f"http://127.0.0.1:{door.port}/v1/models")
        assert answer.status_code == 503
        assert "more than this box takes" in answer.text
        for _, writer in idle:
            writer.close()
        await until(lambda: door.open == 0)
        reader, writer = await dial(door)
        writer.write(b"again")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == b"niaga"
        writer.close()


async def test_a_door_that_leads_to_itself_is_refused() -> None:
    way = Way()
    async with opened(way, hold_s=0.2) as door, httpx.AsyncClient() as client:
        way.target = ("127.0.0.1", door.port)
        assert (await client.get(f"http://127.0.0.1:{door.port}/")).status_code == 503
        assert door.open <= 1


async def test_two_doors_that_point_at_each_other_come_to_an_end() -> None:
    one, two = Way(), Way()
    async with opened(one, 0.2, "127.0.0.8") as first, opened(two, 0.2, "127.0.0.9") as second:
        one.target, two.target = ("127.0.0.9", second.port), ("127.0.0.8", first.port)
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.8:{first.port}/", timeout=10)
        assert answer.status_code == 503
        assert "point at each other" in answer.text
        await until(lambda: first.open == 0 and second.open == 0)


async def test_a_port_in_use_is_refused_with_the_holder_s_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        door = Door("127.0.0.1", port, Way(), 1, lambda: "launch")
        with pytest.raises(Refusal) as caught:
            await door.start()
    assert caught.value.setting == f"port {port}"
    assert f"(pid {os.getpid()})" in caught.value.seen
    assert "API_PORT" in caught.value.cure


async def test_an_address_of_another_box_is_refused() -> None:
    with pytest.raises(Refusal, match="an address of this box"):
        await Door("192.0.2.77", 0, Way(), 1, lambda: "launch").start()


def test_nobody_listens_on_a_free_port() -> None:
    assert who_listens(free_port()) == ""
