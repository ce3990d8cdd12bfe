"""What the fabric check says about measured numbers."""

import asyncio
import json
from pathlib import Path

from core.row import Row
from fabric.round import Job, Outcome, outcome, parse, run_round
from fabric.verdict import UNPLUG, differences, rows, slow_box

NAMES = ["alpha", "beta", "gamma", "delta"]


def measured(gbps: float, **values: object) -> Outcome:
    return Outcome(phase="reduced", gbps=gbps, speeds=(90.0,) * 4, **values)  # type: ignore[arg-type]


def levels(found: tuple[Row, ...]) -> dict[str, str]:
    return {row.name: row.level for row in reversed(found)}


def test_a_healthy_fabric_is_ok() -> None:
    found = rows(measured(186.0), NAMES, 190.0, 2, {})
    assert {row.level for row in found} <= {"ok", "info"}


def test_thirteen_gigabits_are_the_latched_state() -> None:
    """Field report 4: full link rate, clean counters, 13 Gb/s."""
    found = rows(measured(12.6), NAMES, 190.0, 2, {"Ring": 12.6, "Tree": 30.0})
    assert found[0].level == "WARN"
    assert found[0].cure == UNPLUG
    assert "Tree 30.0" in found[0].seen


def test_tree_faster_than_ring_is_the_latched_state_at_any_speed() -> None:
    assert rows(measured(60.0), NAMES, 190.0, 2, {"Ring": 50.0, "Tree": 70.0})[0].cure == UNPLUG
    assert rows(measured(60.0), NAMES, 190.0, 2, {"Ring": 70.0, "Tree": 50.0})[0].cure != UNPLUG


def test_the_box_whose_every_pair_is_slow_is_named() -> None:
    edges = {"0>1": 90.0, "1>0": 91.0, "1>2": 9.0, "2>1": 90.0, "2>3": 88.0, "3>2": 9.5, "3>0": 90.0, "0>3": 92.0}
    assert slow_box(edges, 4) == 2
    assert rows(measured(30.0, edges=edges), NAMES, 190.0, 2)[0].seen.startswith("gamma is slow")
    assert slow_box(dict.fromkeys(edges, 50.0), 4) is None
    # Seen with three boxes over gloo, gamma shaped to 40 Mb/s: pairs differ by much, one box is slow towards all.
    noisy = {"0>1": 0.8, "1>0": 0.4, "1>2": 4.5, "2>1": 0.04, "2>0": 0.04, "0>2": 6.5}
    assert slow_box(noisy, 3) == 2


def test_sockets_although_there_are_rails_fail() -> None:
    """Field report 17: a library that cannot use the fabric falls back to sockets and says nothing."""
    found = rows(measured(180.0, transport="NET/Socket"), NAMES, 190.0, 2)
    assert levels(found)["NCCL transport"] == "FAIL"
    assert "NCCL transport" not in levels(rows(measured(180.0, transport="NET/IB"), NAMES, 190.0, 2))
    assert "NCCL transport" not in levels(rows(measured(10.0, transport="NET/Socket"), NAMES, 0.0, 0))


def test_only_what_differs_is_said_with_who_has_what() -> None:
    """Field report 42: boxes that are not in the same state are compared before they wait for each other."""
    facts = {rank: {"torch": "2.11", "overlay files": "aa" if rank != 2 else "bb"} for rank in range(4)}
    (row,) = differences(facts, NAMES)
    assert row.seen == "overlay files: aa on alpha, beta, delta; bb on gamma"


def test_a_difference_has_a_cure_of_its_own_and_a_box_s_own_knob_is_only_shown() -> None:
    facts = {0: {"driver": "580", "knob READY_S": "3600"}, 1: {"driver": "570", "image": "ab"}}
    rows = {row.seen.partition(":")[0]: row for row in differences(facts, NAMES)}
    assert "driver" in rows["driver"].cure
    assert "image send" in rows["image"].cure
    assert rows["image"].seen == "image: nothing on alpha; ab on beta"
    assert (rows["knob READY_S"].level, rows["knob READY_S"].cure) == ("info", "")


def test_missing_killed_and_silent_boxes_are_named() -> None:
    assert "delta did not arrive" in rows(Outcome(missing=(3,)), NAMES, 0, 0)[0].seen
    assert "beta: silent" in rows(Outcome(blamed={1: "silent for 5 s"}), NAMES, 0, 0)[0].seen
    assert "torch" in rows(Outcome(error="torch cannot be imported"), NAMES, 0, 0)[0].seen


def test_a_box_that_computes_slowly_is_named() -> None:
    found = rows(Outcome(gbps=185.0, speeds=(90.0, 91.0, 40.0, 90.0)), NAMES, 190.0, 2)
    assert any(row.name == "compute probe" and "gamma" in row.seen for row in found)


def test_lines_that_are_no_event_are_left_out() -> None:
    lines = [b"a library prints\n", b"[1]\n", b"\xff\n", json.dumps({"event": "phase", "phase": "met"}).encode()]
    assert outcome([parse(line) for line in lines]).phase == "met"


def test_a_worker_that_cannot_even_start_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
    broken.chmod(0o755)
    job = Job(0, 2, "127.0.0.1", 1, "gloo", 8, {})
    for python, said in ((str(broken), "status 127: no such library"), (str(tmp_path / "gone"), "cannot be started")):
        found = asyncio.run(run_round(python, job, {"PATH": "/usr/bin:/bin"}, 20))
        assert said in found.error
        assert rows(found, NAMES, 0.0, 0)[0].level == "WARN"
