"""Real kits agree, launch, lose a member and agree again; refusals are a state, or exit status 2."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.main.kits.boxes import boxes, engines_of, serving, until


def test_three_boxes_serve_one_generation_and_come_back_after_every_loss(tmp_path: Path) -> None:
    with boxes(tmp_path, 3) as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        first = serving(made)
        ranks = " ".join(f"{rank}={box.lan}" for rank, box in enumerate(made))
        line = f"election: head {made[0].lan} (the lowest lan address), TP=3, ranks {ranks}"
        assert {box.status()["election"]["line"] for box in made} == {line}
        assert [box.status()["box"]["rank"] for box in made] == [0, 1, 2]

        os.kill(made[1].status()["engine"]["pid"], signal.SIGKILL)
        until(lambda: serving(made) not in ("", first), made)
        second = serving(made)

        made[2].end(signal.SIGKILL)
        until(lambda: not made[0].status()["healthy"], made, 5)
        made[2].start()
        until(lambda: serving(made) not in ("", first, second), made)

        made[0].end(signal.SIGKILL)  # the head
        made[0].start()
        until(lambda: serving(made) not in ("", first, second), made)
        assert made[0].status()["generation"]["epoch"] >= 4

        assert [box.end() for box in made] == [0, 0, 0]
        assert engines_of(made) == []


def test_a_box_that_is_told_to_end_says_so_and_the_others_free_their_engines(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        assert made[1].end() == 0
        until(lambda: made[0].status()["box"]["state"] == "joining", made, 5)
        assert "told to end" in made[0].log()
        assert engines_of(made) == []
        assert made[0].end() == 0


def test_a_short_pause_of_a_box_ends_nothing(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        first = serving(made)
        assert made[1].process is not None
        made[1].process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        made[1].process.send_signal(signal.SIGCONT)
        until(lambda: serving(made) != "", made, 10)
        assert serving(made) == first


def test_a_silent_box_whose_rank_works_ends_nothing(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        first = serving(made)
        assert made[1].process is not None
        made[1].process.send_signal(signal.SIGSTOP)  # the kit, not its engine
        until(lambda: "silent on the LAN, but its rank works" in made[0].status()["stages"][-1]["step"], made)
        assert made[0].status()["healthy"]
        made[1].process.send_signal(signal.SIGCONT)
        until(lambda: made[0].status()["stages"][-1]["step"] == "serving", made)
        assert serving(made) == first


def test_a_silent_box_and_no_token_end_the_generation(tmp_path: Path) -> None:
    with boxes(tmp_path, 2, CANARY_S="2") as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        first = serving(made)
        (made[0].folder / "model" / "stuck").touch()
        assert made[1].process is not None
        made[1].process.send_signal(signal.SIGSTOP)
        until(lambda: made[0].status()["box"]["state"] == "joining", made)
        assert f"{made[1].lan} is silent, and the engine gives no token" in made[0].log()
        assert made[0].status()["engine"]["running"] is False
        (made[0].folder / "model" / "stuck").unlink()
        made[1].process.send_signal(signal.SIGCONT)
        until(lambda: serving(made) not in ("", first), made)


def test_a_long_pause_stops_the_engine_first(tmp_path: Path) -> None:
    with boxes(tmp_path, 2, LOST_S="2") as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made)
        first = serving(made)
        assert made[1].process is not None
        made[1].process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        made[1].process.send_signal(signal.SIGCONT)
        until(lambda: serving(made) not in ("", first), made)
        assert "paused for more than 2s" in made[1].log()


def test_a_refusal_is_a_state_until_it_is_cured(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        made[0].start()
        made[1].start(TP="four")
        until(lambda: made[1].status().get("refusals", []) != [], made)
        until(lambda: "TP: seen 'four'" in made[0].status().get("sentence", ""), made)  # the others see why
        assert not made[0].status()["refusals"]
        assert made[1].end() == 0
        made[1].start(TP="4")
        until(lambda: "TP" in [one["setting"] for one in made[0].status()["refusals"]], made)
        made[1].end(signal.SIGKILL)
        made[1].start()
        until(lambda: serving(made) != "", made)
        assert "Traceback" not in made[0].log() + made[1].log()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"TP": "5"}, "TP: seen '5'"),
        ({"KV_CACHE_MEMORY": "-1"}, "KV_CACHE_MEMORY: seen '-1'"),
        ({"MAX_NUM_SEQ": "8"}, "MAX_NUM_SEQ"),
        ({"LIMIT_MM": "{"}, "LIMIT_MM: seen '{'"),
        ({"MODEL_DIR": "/nowhere"}, "MODEL_DIR: seen /nowhere is not a folder"),
        ({"CACHE_ROOT": "/proc/nowhere"}, "CACHE_ROOT: seen /proc/nowhere"),
        ({"ENGINE_PYTHON": "/nowhere/python"}, "ENGINE_PYTHON"),
        ({"MEMBERSHIP": "mentat"}, "not in this version"),
        ({"EXECUTOR": "ray"}, "not in this version"),
        ({"EXTRA_ARGS": "--nnodes 3"}, "EXTRA_ARGS"),
        ({"TP": "RING4", "TOPOLOGY": "switch"}, "TOPOLOGY"),
    ],
)
def test_a_local_fault_is_one_line_and_exit_2(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    with boxes(tmp_path, 1, tp=2, ON_REFUSAL="exit") as (box,):
        box.start(**settings)
        assert box.process is not None
        assert box.process.wait(20) == 2
        assert said in box.log()
        assert "Traceback" not in box.log()


def test_different_settings_are_refused_on_all_boxes(tmp_path: Path) -> None:
    with boxes(tmp_path, 2, ON_REFUSAL="exit") as made:
        made[0].start(MAX_NUM_SEQS="4")
        made[1].start(MAX_NUM_SEQS="8")
        assert [box.process.wait(20) for box in made if box.process] == [2, 2]
        for box in made:
            assert "MAX_NUM_SEQS: seen 4 on " in box.log()
            assert "launch" not in box.log()


def test_two_groups_on_one_lan_never_mix(tmp_path: Path) -> None:
    with boxes(tmp_path / "a", 2) as one, boxes(tmp_path / "b", 2) as other:
        peers = ",".join(box.lan for box in one + other)
        for box in one + other:
            box.start(PEERS=peers)
        until(lambda: serving(one) != "" and serving(other) != "", one + other)
        assert serving(one) != serving(other)
        assert {row["lan"] for row in one[0].status()["members"] if row["verified"]} == {box.lan for box in one}


def test_two_boxes_with_one_address_are_named_by_all(tmp_path: Path) -> None:
    with boxes(tmp_path, 3, tp=3) as made:
        made[2].start(LAN_ADDRESS=made[1].lan, PEERS=f"{made[0].lan},{made[1].lan}")
        for box in made[:2]:
            box.start(PEERS=",".join(box.lan for box in made))
        for box in made[:2]:
            until(lambda box=box: f"address {made[1].lan}" in str(box.status().get("refusals")), made)  # type: ignore[misc]


def test_a_box_that_cannot_keep_its_state_still_says_so_to_the_others(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        made[0].start()
        made[1].start(STATE_DIR="/proc/nowhere")
        until(lambda: "STATE_DIR: seen /proc/nowhere" in made[0].status().get("sentence", ""), made)


def test_a_box_with_a_fault_of_its_own_does_not_keep_a_complete_group_from_serving(tmp_path: Path) -> None:
    with boxes(tmp_path, 3, tp=2) as made:
        made[2].start(MODEL_DIR="/nowhere")
        until(lambda: made[2].status().get("refusals", []) != [], made)
        for box in made[:2]:
            box.start()
        until(lambda: serving(made[:2]) != "", made)
