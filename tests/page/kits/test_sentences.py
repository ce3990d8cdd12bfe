"""Real kits on loopback addresses: whatever happens to a box, all pages say the same, and what they say is right.

The engine is a stand-in that answers at once; bench/page.py does the same with ranks that need each other.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from entrypoint.status.shape import schema
from tests.main.kits.boxes import OPENER, Box, boxes

AGREE_S = 5.0


def get(box: Box, path: str) -> tuple[int, Any]:
    """Status and parsed JSON, or text, of a page's answer."""
    try:
        with OPENER.open(f"http://{box.lan}:8082{path}", timeout=5) as answer:
            status, body, kind = answer.status, answer.read(), answer.headers["content-type"]
    except urllib.error.HTTPError as error:
        status, body, kind = error.code, error.read(), error.headers["content-type"]
    return status, json.loads(body) if "json" in kind else body.decode()


def all_say(made: Sequence[Box], words: str, seconds: float) -> str:
    """The one sentence that all pages say once it fits; they must agree within AGREE_S of the first that says it."""
    began, first = time.monotonic(), None
    while True:
        said = [str(box.status().get("sentence", "")) for box in made]
        right = [bool(re.search(words, one)) for one in said]
        now = time.monotonic()
        first = (first or now) if any(right) else None
        if all(right) and len(set(said)) == 1:
            assert now - (first or now) <= AGREE_S, said
            return said[0]
        assert now - began < seconds, f"{words!r} is not what they say: {said}\n{made[0].log()}"
        time.sleep(0.05)


def kill_engine(box: Box) -> None:
    """SIGKILL to the engine of a box, as the kernel would."""
    os.kill(int(box.status()["engine"]["pid"]), signal.SIGKILL)


def test_every_page_says_the_same_and_what_it_says_is_right(tmp_path: Path) -> None:
    with boxes(tmp_path, 3, CANARY_S="2", ENGINE_STOP_S="2") as made:
        first, second, third = made
        first.start()
        assert "1 of 3 boxes are here" in all_say([first], r"^Waiting", 15)
        second.start()
        third.start()
        # No self-test here: until the first canary's token nothing has proved the engine.
        all_say(made, r"^Serving: glm53 on 3 boxes, not self-tested \(SELF_TEST=0\)$", 30)

        for box in made:
            status, whole = get(box, "/status.json")
            assert status == 200
            Draft202012Validator(schema("status")).validate(whole)
            assert whole["memory"]["total"] == sum(part["size"] for part in whole["memory"]["segments"])
            status, page = get(box, "/")
            assert status == 200
            assert "<strong>Serving</strong> glm53 on 3 boxes" in page
        status, seen = get(third, "/cluster.json")
        Draft202012Validator(schema("cluster")).validate(seen)
        assert status == 200
        assert [row["lan"] for row in seen["boxes"]] == [box.lan for box in made]
        assert seen["agree"] or all(row["status"] for row in seen["boxes"])

        kill_engine(third)
        said = all_say(made, rf"the engine of \S+ \({third.lan}\) ended", 10)
        assert said.startswith(("Restarting", "Starting", "Waiting"))
        all_say(made, r"^Serving", 30)

        third.end(signal.SIGKILL)
        all_say([first, second], rf"\({third.lan}\) (is gone|has no kit|refuses)|{third.lan} refuses", 10)
        all_say([first, second], rf"^Waiting: 2 of 3 boxes are here; \S+ \({third.lan}\) has no kit running$", 15)
        assert get(first, "/healthz")[0] == 503
        third.start()
        all_say(made, r"^Serving", 30)

        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        all_say([first, third], rf"^Serving: .*\({second.lan}\) is silent on the LAN", 8)
        (first.folder / "model" / "stuck").touch()
        all_say([first, third], rf"\({second.lan}\)|{second.lan} is silent", 30)
        (first.folder / "model" / "stuck").unlink()
        second.process.send_signal(signal.SIGCONT)
        all_say(made, r"^Serving", 40)


def test_a_refusal_is_on_every_page(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        made[0].start()
        made[1].start(TP="four")
        said = all_say(made, r"^Refused", 20)
        assert f"({made[1].lan}) refuses TP: seen 'four'" in said
        assert get(made[0], "/healthz")[0] == 503
        assert "<dt>Cure</dt>" in get(made[1], "/")[1]


@pytest.mark.parametrize("bad", [{}, {"TP": "x", "STATUS_PORT": "", "LOG_DIR": "/proc/x", "PEERS": "::::"}])
def test_the_first_byte_comes_before_anything_can_fail(tmp_path: Path, bad: dict[str, str]) -> None:
    with boxes(tmp_path, 1, 2, MODEL_DIR="/nowhere", **bad) as made:
        began = time.monotonic()
        made[0].start()
        while not made[0].status():
            assert time.monotonic() - began < 20, made[0].log()
            time.sleep(0.02)
        assert get(made[0], "/")[0] == 200
