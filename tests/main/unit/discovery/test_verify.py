"""From a hint to a verified member, over real sockets on loopback addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from entrypoint.discovery import verify
from entrypoint.discovery.provider import Hint
from entrypoint.discovery.verify import MOST, Members
from tests.main.unit.discovery.fake_box import FakeBox

HERE = "127.0.9.1"


def members(secret: str | None = None) -> Members:
    return Members(lan=HERE, instance="aa", group="g", secret=secret, source="")


async def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


def play(scene: Callable[[Members, FakeBox], Awaitable[None]], *, ours: str | None = None, **box: str) -> None:
    """Run a scene with one fake box at 127.0.9.2, and close everything."""

    async def run() -> None:
        table, fake = members(ours), FakeBox("127.0.9.2", **box)
        await fake.start()
        try:
            await scene(table, fake)
        finally:
            await table.stop()
            await fake.close()

    asyncio.run(run())


def hint(table: Members, box: FakeBox, host: str = "") -> None:
    table.on_hint(Hint(host or box.host, box.port, "test"), True)


def test_a_hint_becomes_a_member_once_it_answers_for_its_own_address() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        hint(table, box)
        await until(lambda: "127.0.9.2" in table.live())

    play(scene)


def test_a_member_is_known_by_its_lan_address_however_it_was_reached() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        relay = FakeBox("127.0.9.3")
        await relay.start()
        relay.lan, relay.port = box.host, box.port  # a second address of the same box
        second = relay._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        table.on_hint(Hint("127.0.9.3", second, "PEERS"), True)
        await until(lambda: "127.0.9.2" in table.live())
        assert set(table.table) == {"127.0.9.2"}
        await relay.close()

    play(scene)


@pytest.mark.parametrize(
    ("ours", "box", "why"),
    [
        (None, {"group": "other"}, "belongs to group other"),
        ("s", {}, "does not sign"),
        ("s", {"secret": "t"}, "signature"),
    ],
)
def test_another_group_or_secret_counts_for_nothing_and_says_why(
    ours: str | None, box: dict[str, str], why: str
) -> None:
    async def scene(table: Members, fake: FakeBox) -> None:
        hint(table, fake)
        await until(lambda: why in table.hints[(fake.host, fake.port)])
        assert not table.table

    play(scene, ours=ours, **box)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 400_000,
        b"\xff\xfe\x00",
    ],
)
def test_anything_else_on_that_port_is_no_member(raw: bytes) -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        box.raw = raw
        hint(table, box)
        await until(lambda: not table.hints[(box.host, box.port)].startswith("not asked"))
        assert not table.table

    play(scene)


def test_a_member_whose_kit_is_gone_is_told_from_a_silent_one() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        hint(table, box)
        await until(lambda: bool(table.live()))
        port = box.port
        await box.close()
        await until(lambda: table.table["127.0.9.2"].sight.refused_began > 0)
        assert not table.live()
        box.instance = "cc"
        await box.start(port)
        await until(lambda: bool(table.live()))
        assert not table.shared_addresses()  # it started again: A, B and never A again

    play(scene)


def test_a_question_that_is_lost_is_asked_again_soon_however_slow_the_pace() -> None:
    """A serving group asks every two seconds: one lost answer must not make a box look silent (LIVE_S)."""

    async def scene(table: Members, box: FakeBox) -> None:
        table.pace = lambda: 3600.0
        hint(table, box)
        await until(lambda: bool(table.live()))
        box.raw = b""
        table.poke()
        await until(lambda: bool(table.table["127.0.9.2"].note))
        box.raw = None
        await until(lambda: not table.table["127.0.9.2"].note)

    play(scene)


def test_a_member_that_asks_is_asked_back_and_with_news_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without news not if it was asked just now: two boxes would ask each other back for ever."""

    async def scene(table: Members, box: FakeBox) -> None:
        table.pace = lambda: 3600.0
        hint(table, box)
        await until(lambda: bool(table.live()))
        monkeypatch.setattr(verify, "ASKED_S", 3600.0)
        table.asked("127.0.9.2", news=False)
        table.asked("127.0.9.77", news=True)  # no member
        await asyncio.sleep(0.1)
        assert box.asked == 1
        table.asked("127.0.9.2", news=True)
        await until(lambda: box.asked == 2)
        monkeypatch.setattr(verify, "ASKED_S", 0.0)
        table.asked("127.0.9.2", news=False)
        await until(lambda: box.asked == 3)
        assert box.news == [False, False, False]
        table.poke()
        await until(lambda: box.asked == 4)
        assert box.news[3]

    play(scene)


def test_an_address_that_two_starts_answer_in_turn_is_named() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        hint(table, box)
        for instance in ("bb", "cc", "bb"):
            box.instance = instance
            await until(lambda: bool(table.live()) and table.live()["127.0.9.2"].instance == box.instance)
        assert table.shared_addresses() == {"127.0.9.2": ("bb", "cc")}

    play(scene)


def test_another_box_with_our_own_address_is_named() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        box.lan = HERE
        hint(table, box)
        await until(lambda: table.shared_addresses() == {HERE: ("aa", "bb")})

    play(scene)


def test_our_own_answer_is_no_member() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        hint(table, box)
        await until(lambda: table.hints[(box.host, box.port)] == "this box itself")
        assert not table.table

    play(scene, instance="aa")


def test_a_lower_sequence_is_dropped() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        box.sequence = 100
        hint(table, box)
        await until(lambda: bool(table.live()))
        box.sequence = 7
        asked = box.asked
        await until(lambda: box.asked > asked + 2)
        seen = table.table["127.0.9.2"].sight.view
        assert seen is not None
        assert seen.sequence == 100

    play(scene)


def test_members_of_members_are_hints() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        third = FakeBox("127.0.9.3", instance="cc")
        await third.start()
        box.peers = (f"127.0.9.3:{third.port}", "garbage", "127.0.9.1:1", ":", "127.0.9.4:99999999")
        hint(table, box)
        await until(lambda: set(table.live()) == {"127.0.9.2", "127.0.9.3"})
        assert set(table.hints) == {(box.host, box.port), ("127.0.9.3", third.port)}
        table.reap()
        await third.close()

    play(scene)


def test_a_flood_of_hints_is_bounded() -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        for port in range(1, 500):
            table.on_hint(Hint("127.0.9.9", port, "flood"), True)
        assert len(table.hints) <= MOST
        hint(table, box)  # and leaves room for a box that answers
        await until(lambda: bool(table.live()))

    play(scene)


@pytest.mark.parametrize("host", ["", "no such host", "a" * 300, "..", "\x00", "999.1.1.1", "1.2.3", "ü.invalid"])
def test_a_hint_that_cannot_be_asked_is_no_failure(host: str) -> None:
    async def scene(table: Members, box: FakeBox) -> None:
        table.on_hint(Hint(host, box.port, "PEERS"), True)
        table.on_hint(Hint(box.host, 99999, "PEERS"), True)
        hint(table, box)
        await until(lambda: bool(table.live()))
        table.reap()
        assert set(table.table) == {box.host}

    play(scene)
