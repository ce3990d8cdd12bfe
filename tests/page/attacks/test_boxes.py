"""Calls between boxes: forged, replayed, for another box; and peers that answer nonsense, hang or stream for ever."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from core.registry import registry
from core.settings import resolve
from entrypoint.boot import Boot
from entrypoint.status import cluster, forward
from entrypoint.status.fetch import FetchFailed, fetch
from entrypoint.status.forward import ForwardFailed, Peer
from entrypoint.status.searching import SearchFailed, ask_worker
from entrypoint.status.signed import ANSWER_HEADER, CALL_HEADER, answer_code, call_code, call_header
from tests.main.kits.boxes import Box
from tests.page.asking import SECRET, client
from tests.page.attacks.wire import well

READ = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_log", "arguments": {}}}
).encode()
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def signed(
    box: Box, asking: httpx.Client, nonce: str, secret: str = SECRET, sent: str = READ.decode(), **changed: str
) -> httpx.Response:
    """A call as a box makes it, with parts of what is signed replaced."""
    group = box.settings["GROUP_NAME"]
    parts = {"group": group, "dialled": box.lan, "method": "POST", "path": "/mcp", **changed}
    body = sent.encode() if "body" not in parts else parts.pop("body").encode()
    code = call_code(secret, parts["group"], parts["dialled"], parts["method"], parts["path"], body, nonce)
    headers = {"Content-Type": "application/json", CALL_HEADER: call_header(nonce, code)}
    return asking.post(f"http://{box.lan}:8082/mcp", content=sent, headers=headers)


def nonce_of(box: Box, asking: httpx.Client) -> str:
    found: str = asking.get(f"http://{box.lan}:8082/nonce.json").json()["nonce"]
    return found


def test_a_good_call_is_answered_once_and_its_answer_is_signed(box: Box) -> None:
    with client() as asking:
        nonce = nonce_of(box, asking)
        answer = signed(box, asking, nonce)
        assert answer.status_code == 200
        assert not answer.json()["result"]["isError"]
        group = box.settings["GROUP_NAME"]
        code = call_code(SECRET, group, box.lan, "POST", "/mcp", READ, nonce)
        assert answer.headers[ANSWER_HEADER] == answer_code(SECRET, group, code, 200, answer.content)
        for _ in range(5):
            assert signed(box, asking, nonce).status_code == 403  # replayed


def test_what_another_box_asks_is_not_passed_on(box: Box) -> None:
    onward = json.loads(READ)
    onward["params"]["arguments"]["node"] = "spark-c"
    with client() as asking:
        result = signed(box, asking, nonce_of(box, asking), sent=json.dumps(onward)).json()["result"]
    assert result["isError"]
    assert "not passed on" in result["content"][0]["text"]


def test_forged_calls_are_refused(box: Box) -> None:
    with client() as asking:
        for changed in (
            {"secret": "another"},
            {"group": "another"},
            {"dialled": "127.0.0.1"},
            {"method": "GET"},
            {"path": "/"},
            {"body": "{}"},
        ):
            answer = signed(box, asking, nonce_of(box, asking), **changed)
            assert answer.status_code == 403, changed
            assert ANSWER_HEADER not in answer.headers
        for nonce in ("0" * 32, f"{'0' * 32}.99999999999.{'0' * 32}", "a b", "."):
            assert signed(box, asking, nonce).status_code == 403
    well(box)


def boot_of(secret: str) -> Boot:
    boot = Boot({})
    boot.settings = resolve(registry(), {"GROUP_SECRET": secret, "GROUP_NAME": "g"} if secret else {})
    return boot


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[Peer]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Peer("127.0.0.1", port, "other")
    finally:
        server.close()


def http(body: bytes, head: str = "HTTP/1.1 200 OK", more: str = "") -> bytes:
    return f"{head}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


async def question(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return body, {"path": lines[0].split(" ")[1], **headers}


async def endless(writer: asyncio.StreamWriter, head: bytes, block: bytes) -> None:
    writer.write(head)
    try:
        while True:
            writer.write(block)
            await writer.drain()
    except OSError:
        writer.close()


def answers(what: str) -> Handler:
    """A peer that is not a box, or a box gone wrong."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _, headers = await question(reader)
            good = b'{"result": {"content": [{"type": "text", "text": "{}"}], "isError": false}}'
            if what == "hangs":
                await asyncio.sleep(60)
            elif what == "streams":
                await endless(writer, b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)
            elif what == "streams headers":
                await endless(writer, b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"z" * 1000 + b"\r\n")
            elif what == "drips":
                for number in range(1000):
                    writer.write(b"HTTP/1.1 200 OK\r\n" if number == 0 else b"X: y\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            elif what == "informs for ever":
                await endless(writer, b"", b"HTTP/1.1 100 Continue\r\n\r\n")
            elif what == "garbage":
                writer.write(bytes(range(256)) * 10)
            elif what == "closes":
                pass
            elif what == "html":
                writer.write(http(b"<html>", more="Content-Type: text/html\r\n"))
            elif what == "deep":
                writer.write(http(b"[" * 90_000))
            elif what == "redirects":
                writer.write(http(b"", "HTTP/1.1 302 Found", "Location: http://127.0.0.1:1/\r\n"))
            elif headers["path"] == "/nonce.json":
                writer.write(http(b'{"nonce": "n"}' if what != "odd nonce" else b'{"nonce": "a\\r\\nX: y"}'))
            elif what == "unsigned":
                writer.write(http(good))
            elif what == "forged":
                writer.write(http(good, more=f"{ANSWER_HEADER}: {'0' * 64}\r\n"))
            elif what == "other secret":
                call = headers[CALL_HEADER].split(" ")[1]
                writer.write(http(good, more=f"{ANSWER_HEADER}: {answer_code('other', 'g', call, 200, good)}\r\n"))
            elif what == "other answer":
                call = headers[CALL_HEADER].split(" ")[1]
                writer.write(http(good, more=f"{ANSWER_HEADER}: {answer_code(SECRET, 'g', call, 200, b'x')}\r\n"))
            elif what == "other call":
                told = call_code(SECRET, "g", "127.0.0.1", "POST", "/mcp", b"other", "n")
                writer.write(http(good, more=f"{ANSWER_HEADER}: {answer_code(SECRET, 'g', told, 200, good)}\r\n"))
            else:
                call = headers[CALL_HEADER].split(" ")[1]
                writer.write(http(good, more=f"{ANSWER_HEADER}: {answer_code(SECRET, 'g', call, 200, good)}\r\n"))
            await writer.drain()
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    return handle


WRONG = (
    *("hangs", "streams", "streams headers", "drips", "informs for ever", "garbage", "closes", "html", "deep"),
    *("redirects", "odd nonce", "unsigned", "forged", "other secret", "other answer", "other call"),
)


@pytest.mark.parametrize("what", WRONG)
def test_a_peer_that_is_wrong_is_told_apart_in_time_and_memory(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "TIMEOUT_S", 1.5)
    monkeypatch.setattr(forward, "NONCE_TIMEOUT_S", 1.5)

    async def ask() -> None:
        async with peer(answers(what)) as other:
            await forward.call(boot_of(SECRET), other, "read_log", {}, reads_files=True)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(ForwardFailed):
        asyncio.run(ask())
    assert time.monotonic() - began < 6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_a_peer_that_is_right_is_believed() -> None:
    async def ask() -> object:
        async with peer(answers("right")) as other:
            return await forward.call(boot_of(SECRET), other, "read_log", {}, reads_files=True)

    assert asyncio.run(ask()) == {"content": [{"type": "text", "text": "{}"}], "isError": False}


def test_without_the_secret_files_are_not_forwarded_at_all() -> None:
    async def ask() -> None:
        async with peer(answers("right")) as other:
            await forward.call(boot_of(""), other, "read_log", {}, reads_files=True)

    with pytest.raises(ForwardFailed, match="GROUP_SECRET"):
        asyncio.run(ask())


def test_a_closed_port_is_told_in_words() -> None:
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1:1"):
        asyncio.run(fetch("127.0.0.1", 1, "/", timeout_s=2, largest=10))


BOMBS = ("(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}$", r"(\w+\s?)*$!", "((a{1,999}){1,999}){1,99}", "(" * 180)


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_regex_bomb_ends_in_its_own_process(pattern: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "long.log").write_text(("a" * 60 + "!\n") * 5)
    question = {"job": "search", "path": ".", "pattern": pattern, "glob": "", "most": 10, "secrets": []}

    async def ask() -> float:
        """The longest pause of this process while the worker burns."""
        worst, last = 0.0, time.monotonic()
        task = asyncio.ensure_future(ask_worker({**question, "roots": [str(folder)]}, 1.5))
        while not task.done():
            await asyncio.sleep(0.02)
            worst, last = max(worst, time.monotonic() - last), time.monotonic()
        with suppress(SearchFailed):
            await task
        return worst

    began = time.monotonic()
    assert asyncio.run(ask()) < 1
    assert time.monotonic() - began < 6


@pytest.mark.parametrize("what", [*WRONG[:10], "unsigned"])
def test_a_status_that_is_wrong_is_an_error_on_the_page(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ASK_S", 1.5)
    seen = cluster.Seen()

    async def ask() -> None:
        async with peer(answers(what)) as other:
            await cluster.Cluster(boot_of(""))._fetch((other.lan, other.port), seen)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    asyncio.run(ask())
    assert seen.status is None
    assert seen.error
    assert time.monotonic() - began < 6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
