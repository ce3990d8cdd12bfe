"""What stages wait with: a pause keeps its length while the driver steps, and the end of a generation cuts it short."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from group.ask import boottime
from group.driver import Driver, GenerationOver
from group.machine import Limits
from group.store import Store
from group.view import About, Record, Seat


def driver(folder: Path) -> Driver:
    return Driver(
        lan="127.0.0.11", port=8082, group="g", secret=None, limits=Limits(accept_s=60, join_s=60, lost_s=15),
        ports=(20000, 28191), store=Store(folder), about=About, sights=dict,
    )  # fmt: skip


def test_a_pause_is_not_shortened_by_steps(tmp_path: Path) -> None:
    """The head looks at vLLM's /metrics once a pause; it did so at every step of the driver, five times a second."""

    async def scene() -> float:
        one, began = driver(tmp_path), boottime()
        pause = asyncio.create_task(one.pause(0.5))
        while not pause.done():
            one.poke()
            await asyncio.sleep(0.01)
        await pause
        return boottime() - began

    assert asyncio.run(scene()) >= 0.5


def test_a_generation_that_ends_cuts_a_pause_short(tmp_path: Path) -> None:
    async def scene() -> None:
        one = driver(tmp_path)
        pause = asyncio.create_task(one.pause(3600))
        await asyncio.sleep(0)
        one.own = replace(one.own, state="stopping", reason="a box went")
        one._wake()
        await pause

    with pytest.raises(GenerationOver, match="a box went"):
        asyncio.run(asyncio.wait_for(scene(), 60))


def test_once_all_run_the_driver_sleeps_and_still_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle kit wakes seldom; what ends a generation comes by poke(), not by a tick."""
    monkeypatch.setattr("group.driver.QUIET_TICK_S", 3600.0)  # a quarter of LOST_S then, 3.75 s

    async def scene() -> None:
        one = driver(tmp_path)
        own = one.own
        seat = Seat(0, own.lan, own.lan, own.instance, own.n)
        record = Record("ab", 1, (seat,), "p", 20000, 20001)
        one.own = replace(own, state="running", together=True, record=record, epoch=1)
        ticking = asyncio.create_task(one.run())
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(one.over())
        one.engine = "exited"
        one.poke()
        try:
            await waiting
        finally:
            ticking.cancel()

    with pytest.raises(GenerationOver, match="the engine of this box ended"):
        asyncio.run(asyncio.wait_for(scene(), 60))
