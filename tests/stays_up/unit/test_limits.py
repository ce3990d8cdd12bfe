"""Retries have a cap, unclean reboots are counted within a day, memory must come back; evidence is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from entrypoint.watch.counters import activity, size_of
from entrypoint.watch.limits import Settling, another, cause, rebooted, settle
from evidence.collect import KEPT, collect
from group.store import Store

GIB = 1024**3


@pytest.mark.parametrize(
    ("reason", "died", "served", "key"),
    [
        ("wedged: 1 requests in the engine", False, True, "wedge"),
        ("the engine of this box ended", True, False, "start"),
        ("the engine of this box ended", True, True, "serving"),
        ("vLLM's API did not answer within 1h", False, False, "stall"),
        ("10.0.0.1 is stopping: wedged: 1 requests", False, True, ""),
        ("10.0.0.2 started again", False, True, ""),
        ("this box was told to end", False, True, ""),
    ],
)
def test_only_its_own_failures_count_for_a_box(reason: str, died: bool, served: bool, key: str) -> None:
    assert cause(reason, died, served) == key


def test_tries_wait_longer_each_time_and_end_at_the_cap() -> None:
    tries = [another(count, 5, 0, 1800) for count in range(5)]
    assert [one.pause_s for one in tries] == [0, 2, 5, 15, 30]
    assert [one.stop for one in tries] == [False, False, False, False, True]


def test_an_engine_that_served_for_long_is_forgiven() -> None:
    assert another(4, 5, 1800, 1800).count == 1
    assert another(4, 5, 1799, 1800).stop


def test_the_second_unclean_reboot_of_a_day_blocks() -> None:
    first = rebooted("a", "b", True, (), 1000)
    assert (first.happened, first.blocked) == (True, False)
    second = rebooted("b", "c", True, first.times, 1000 + 3600)
    assert second.blocked
    assert not rebooted("b", "c", True, first.times, 1000 + 90000).blocked
    assert not rebooted("b", "c", False, first.times, 2000).blocked  # stopped in good order before
    assert not rebooted("b", "b", True, (), 1000).happened  # only the kit started again
    assert not rebooted("", "b", True, (), 1000).happened  # the first start ever


def test_memory_is_waited_for_while_it_rises_and_no_longer() -> None:
    known: Settling | None = None
    for second, available in enumerate((10, 20, 30, 40)):
        known, how = settle(known, available * GIB, 100 * GIB, second)
        assert how == ""
    assert settle(known, 100 * GIB, 100 * GIB, 5)[1] == "enough"
    assert settle(known, 40 * GIB, 100 * GIB, 12)[1] == ""
    assert settle(known, 40 * GIB, 100 * GIB, 13)[1] == "settled"


def test_what_is_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(tries_start=3, boot_id="abc")
    store.keep_epoch(7)
    again = Store(tmp_path)
    assert (again.epoch, again.count("tries_start"), again.text("boot_id"), again.count("never")) == (7, 3, "abc", 0)


def test_a_file_of_an_older_or_broken_kit_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    (tmp_path / "group.json").write_text(json.dumps({"epoch": 4, "tries_start": -1, "x": [1], "serving": True}))
    store = Store(tmp_path)
    assert (store.epoch, store.count("tries_start"), store.count("serving")) == (4, 0, 0)


def test_evidence_holds_every_part_and_old_folders_go(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        (tmp_path / "evidence" / f"2020010{number:02}").mkdir(parents=True)
    folder = collect(tmp_path, "abc", {"reason": "wedged"}, ["last line"], [os.getpid(), 2**22 - 1])
    assert json.loads((folder / "summary.json").read_text())["reason"] == "wedged"
    assert "last line" in (folder / "engine.log").read_text()
    assert f"== {os.getpid()} " in (folder / "processes.txt").read_text()
    assert {path.name for path in folder.iterdir()} >= {"stacks.txt", "gids.txt", "kernel.log", "memory.txt", "gpu.txt"}
    assert len(list((tmp_path / "evidence").iterdir())) == KEPT


def test_a_process_is_seen_with_what_it_read_and_holds(tmp_path: Path) -> None:
    before = activity([os.getpid()])
    (tmp_path / "file").write_bytes(b"x" * 200_000)
    (tmp_path / "file").read_bytes()
    after = activity([os.getpid(), 2**22 - 1])
    assert after.processes == 1
    assert after.orders - before.orders >= 200_000
    assert after.rss_bytes > 0
    assert size_of(tmp_path) == 200_000
