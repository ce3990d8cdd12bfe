"""What vLLM never notices: a rank that stands still, under load and idle, and a boot that hangs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx

from tests.stays_up.kits.boxes import ask, engines_of, fault, kits, serving, stop_rank, until

WEDGE = {"WEDGE_S": "6", "IDLE_CANARY_S": "600"}


def test_a_stopped_rank_under_load_is_ended_with_evidence_of_every_box(tmp_path: Path) -> None:
    with kits(tmp_path, 2, **WEDGE) as made:
        until(lambda: serving(made) != "", made, 120)
        first = serving(made)
        assert ask(made[1]) == "2 2"
        said: list[str] = []

        def load() -> None:
            try:
                said.append(ask(made[1], tokens=10_000, timeout_s=90))
            except httpx.HTTPError as error:
                said.append(type(error).__name__)

        client = threading.Thread(target=load)
        client.start()
        time.sleep(0.5)
        stop_rank(made[1])
        began = time.monotonic()
        until(lambda: made[0].status()["box"]["state"] != "running", made, 6 + 5)
        took = time.monotonic() - began
        client.join(20)
        assert not client.is_alive()  # ended with an error, no hang
        assert "Error" in said[0]
        until(lambda: serving(made) not in ("", first), made, 120)
        assert ask(made[0]) == "2 2"
        assert "wedged: 1 requests in the engine" in made[0].log()
        for box in made:
            (folder,) = (box.folder / "log_dir" / "evidence").iterdir()
            assert "wedged" in json.loads((folder / "summary.json").read_text())["reason"]
            assert "State=T" in (folder / "processes.txt").read_text() or box is made[0]
        print(f"ended after {took:.1f} s with WEDGE_S=6")
        for box in made:
            box.end()
        assert engines_of(made) == []


def test_a_stopped_rank_of_an_idle_engine_is_found_by_the_canary(tmp_path: Path) -> None:
    with kits(tmp_path, 2, WEDGE_S="4", IDLE_CANARY_S="3") as made:
        until(lambda: serving(made) != "", made, 120)
        first = serving(made)
        stop_rank(made[1])
        until(lambda: serving(made) not in ("", first), made, 120)
        assert "wedged: a one-token question in the engine" in made[0].log() or "wedged: 1 requests" in made[0].log()


def test_a_boot_that_hangs_is_ended_and_says_where(tmp_path: Path) -> None:
    with kits(tmp_path, 2, STALL_S="8") as made:
        fault(made[1], phase="warm", do="hang", once=True)
        until(lambda: serving(made) != "", made, 180)
        assert "vLLM stood still while warming up" in made[0].log()


def test_an_engine_that_keeps_dying_is_left_down_and_the_page_says_why(tmp_path: Path) -> None:
    with kits(tmp_path, 2, RETRIES="2") as made:
        fault(made[1], phase="meet", do="crash")
        until(lambda: "RETRIES" in str(made[1].status().get("refusals")), made, 120)
        until(lambda: "refuses RETRIES" in made[0].status()["sentence"], made, 10)
        until(lambda: engines_of(made) == [], made, 20)
        made[1].end(9)
        made[1].start()  # a kill of the kit is no clean stop: it stays down
        until(lambda: "RETRIES" in str(made[1].status().get("refusals")), made, 20)
        (made[1].folder / "model" / "fault.json").unlink()
        made[1].end()
        made[1].start()
        until(lambda: serving(made) != "", made, 120)


def test_a_worker_whose_head_is_silent_ends_when_no_step_reaches_it(tmp_path: Path) -> None:
    with kits(tmp_path, 2, LOST_S="5", WEDGE_S="600", IDLE_CANARY_S="600") as made:
        until(lambda: serving(made) != "", made, 120)
        assert made[0].process is not None
        made[0].process.send_signal(19)  # the head's kit says nothing more; no steps come
        until(lambda: made[1].status()["box"]["state"] != "running", made, 60)
        assert "no step reached this rank" in made[1].log()
        made[0].process.send_signal(18)
        until(lambda: serving(made) != "", made, 120)
