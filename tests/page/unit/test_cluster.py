"""Other boxes' pages: read by the schema, bounded in time and size; whatever they answer, this page stands."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from entrypoint.status import cluster as module
from entrypoint.status.cluster import Cluster, peer_schema
from entrypoint.status.shape import parse, schema, take
from tests.page import scenes

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize("name", ["status", "cluster", "memory", "health"])
def test_every_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("make", [scenes.booting, scenes.serving, scenes.refused])
def test_what_boxes_say_is_what_the_schema_says(make: Any) -> None:
    Draft202012Validator(schema("status")).validate(make())
    Draft202012Validator(schema("memory")).validate(make()["memory"])
    dead = scenes.box(None, "10.0.0.12", error="Connection refused")
    Draft202012Validator(schema("cluster")).validate(scenes.cluster(make(), dead))
    assert take(peer_schema(), make(), "$") == {name: make()[name] for name in scenes.PEER}


def test_the_schema_of_a_peer_is_part_of_a_box_s_own() -> None:
    own = schema("status")["properties"]
    assert peer_schema()["properties"] == {name: own[name] for name in peer_schema()["properties"]}


def test_nothing_another_box_said_is_in_a_box_s_own_status() -> None:
    allowed = {"lan", "port", "age_s", "verified", "note", "url"}
    assert set(schema("status")["properties"]["members"]["items"]["properties"]) == allowed


def test_unknown_names_are_dropped_long_texts_cut_and_wrong_types_refused() -> None:
    status = {**scenes.serving(), "surprise": {"deep": [1]}, "sentence": "x" * 100_000}
    found = take(peer_schema(), status, "$")
    assert "surprise" not in found
    assert len(found["sentence"]) == 4000
    for name, bad in (("healthy", 1), ("box", []), ("stages", {}), ("memory", None), ("mood", "purple"), ("rows", 3)):
        with pytest.raises(ValueError, match=rf"\$\.{name}"):
            take(peer_schema(), {**scenes.serving(), name: bad}, "$")
    with pytest.raises(ValueError, match="missing"):
        take(peer_schema(), {"healthy": True}, "$")


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[" * 100_000, b"NaN", b'{"healthy": Infinity}', b"\xff\xfe", b'"x"', b"1e999999"]
)
def test_what_is_no_status_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text, peer_schema())


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(scenes.PEER), JSON)
def test_any_json_in_any_place_is_taken_by_the_schema_or_refused(name: str, value: Any) -> None:
    try:
        found = take(peer_schema(), {**scenes.serving(), name: value}, "$")
    except ValueError:
        return
    Draft202012Validator(peer_schema()).validate(found)


def boot(port: int) -> Any:
    """A box that knows one other, at a port of this machine."""
    view = SimpleNamespace(about=SimpleNamespace(hostname="spark-z"))
    table = {"127.0.0.1": SimpleNamespace(lan="127.0.0.1", port=port, sight=SimpleNamespace(view=view))}
    own = {**scenes.serving(), "members": [scenes.member("127.0.0.1")]}
    return SimpleNamespace(
        members=SimpleNamespace(table=table),
        board=SimpleNamespace(status=lambda: own),
        lan="10.0.0.9",
        status_port=8082,
        settings=None,
    )


def looked(answer: Callable[[Reader, Writer], Awaitable[None]], seconds: float = 0.0) -> tuple[dict[str, Any], float]:
    """The other box's row after a look (and another one `seconds` later), and how long the first look took."""

    async def run() -> tuple[dict[str, Any], float]:
        async def serve(reader: Reader, writer: Writer) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
                await answer(reader, writer)
            except OSError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        seen = Cluster(boot(server.sockets[0].getsockname()[1]))
        began = time.monotonic()
        found = await seen.look()
        took = time.monotonic() - began
        if seconds:
            await asyncio.sleep(seconds)
            found = seen.as_dict()
        seen.close()
        server.close()
        return next(row for row in found["boxes"] if row["lan"] == "127.0.0.1"), took

    return asyncio.run(run())


def says(text: bytes) -> Callable[[Reader, Writer], Awaitable[None]]:
    async def answer(_: Reader, writer: Writer) -> None:
        writer.write(text)
        await writer.drain()

    return answer


async def hang(_: Reader, __: Writer) -> None:
    await asyncio.sleep(30)


async def for_ever(_: Reader, writer: Writer) -> None:
    writer.write(HEAD)
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


async def drip(_: Reader, writer: Writer) -> None:
    writer.write(HEAD)
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


def test_a_good_answer_is_shown() -> None:
    row, _ = looked(says(HEAD + json.dumps(scenes.serving("10.0.0.10")).encode()))
    assert row["reachable"] is True
    assert row["status"]["service"]["hostname"] == "spark-b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "HTTP"),
        (b"SSH-2.0-x\r\n\r\n", "HTTP"),
        (b"HTTP/1.1 500 no\r\n\r\n", "HTTP 500"),
        (b"HTTP/1.1 301 x\r\nLocation: http://10.0.0.1/\r\n\r\n", "HTTP 301"),
        (HEAD + b"[]", "not object"),
        (HEAD + b"{}", "missing"),
        (HEAD + b"[" * 50_000, "nested too deeply"),
    ],
)
def test_nonsense_is_an_error_of_that_row(text: bytes, why: str) -> None:
    row, _ = looked(says(text))
    assert row["status"] is None
    assert why in row["error"]


@pytest.mark.parametrize("answer", [hang, drip])
def test_a_box_that_hangs_keeps_nobody_waiting(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.7)
    row, took = looked(answer, seconds=1.0)
    assert took < 5 * module.FIRST_S
    assert "no whole answer within" in row["error"]


def test_a_box_that_refuses_is_named_in_words_and_by_its_host_name() -> None:
    async def run() -> dict[str, Any]:
        seen = Cluster(boot(free_port()))
        await seen.look()
        found = seen.as_dict()
        seen.close()
        return next(row for row in found["boxes"] if row["lan"] == "127.0.0.1")

    row = asyncio.run(run())
    assert row["error"] == "Connection refused"
    assert row["name"] == "spark-z"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def test_a_box_that_streams_for_ever_is_cut_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_S", 20.0)
    row, _ = looked(for_ever, seconds=3.0)
    assert "larger than" in row["error"]


def test_nobody_is_asked_while_nobody_looks_nor_twice_at_once() -> None:
    asked = 0

    async def count(_: Reader, writer: Writer) -> None:
        nonlocal asked
        asked += 1
        writer.write(HEAD + json.dumps(scenes.serving("10.0.0.10")).encode())
        await writer.drain()

    async def run() -> None:
        async def serve(reader: Reader, writer: Writer) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await count(reader, writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        seen = Cluster(boot(server.sockets[0].getsockname()[1]))
        assert asked == 0
        await asyncio.gather(*(seen.look() for _ in range(50)))
        server.close()

    asyncio.run(run())
    assert asked == 1
