"""The report and its pictures: whole, standing alone, and safe with whatever a server said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from core.refusal import Refusal
from gate import plots, report
from gate.check import Outcome, Plot, Result

HEAD: dict[str, Any] = {
    "label": "", "url": "http://box:8002", "model": "glm53", "version": "0.32.0", "size": "quick", "series": "s",
    "started": "today", "took": "2m", "interrupted": False, "cold": [], "not_seen": [],
}  # fmt: skip


def result(outcome: Outcome, **more: Any) -> dict[str, Any]:
    made = Result("speed", "speed", "Rates", "a bar", "Because.", {"runs": 3}, outcome, 4.0, 3)
    return {**made.as_dict(), **more}


def page(outcome: Outcome, **head: Any) -> str:
    return report.html(report.build({**HEAD, **head}, [result(outcome)]))


def test_what_a_server_says_is_never_markup() -> None:
    text = page(Outcome("fail", "read <script>alert(1)</script>", {"note": "<img src=x>"}))
    assert "<script" not in text
    assert "<img" not in text


def test_cold_interrupted_and_unseen_are_said() -> None:
    text = page(Outcome("pass", "ok"), cold=["3 lines of compiling"], interrupted=True, not_seen=["clocks"])
    assert "3 lines of compiling" in text
    assert "Interrupted" in text
    assert "clocks" in text


def test_figures_become_tables_and_infinity_is_never() -> None:
    figures = {"code": {"rate": 120.4, "detects": math.inf, "spread": 0.031}, "right": 3}
    text = page(Outcome("pass", "ok", figures))
    assert "never" in text
    assert "3.1%" in text
    assert "120.4" in text


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("lines", {"lines": [{"name": "a", "x": [1, 2, 64], "y": [1.0, 2.0, 3.0]}, {"name": "b", "x": [], "y": []}]}),
        ("lines", {"lines": [{"name": "a", "x": [5], "y": [0.0]}], "from_zero": True}),
        ("lines", {"lines": [{"name": "a", "x": list(range(50)), "y": [100.0 + n % 2 for n in range(50)]}]}),
        ("strip", {"groups": [{"name": "a <b>", "values": [1.0, 1.0, 1.0]}, {"name": "empty", "values": []}]}),
        ("bars", {"names": ["a", "b"], "values": [-0.01, 0.02]}),
        ("bars", {"names": ["a"], "values": [0.0]}),
    ],
)
def test_pictures_are_well_formed_and_inside_their_frame(kind: Any, data: dict[str, Any]) -> None:
    drawn = plots.draw({"kind": kind, "title": "a & b", "x": "x", "y": "y", "data": data})
    svg = ElementTree.fromstring(drawn[drawn.index("<svg") :])
    for part in svg.iter():
        for name, limit in (("x", plots.WIDTH), ("cx", plots.WIDTH), ("y", plots.HEIGHT), ("cy", plots.HEIGHT)):
            if name in part.attrib:
                assert -1 <= float(part.attrib[name]) <= limit + 1


def test_nothing_to_draw_draws_nothing() -> None:
    assert plots.draw({"kind": "lines", "title": "", "x": "", "y": "", "data": {"lines": []}}) == ""
    assert plots.draw({"kind": "strip", "title": "", "x": "", "y": "", "data": {"groups": []}}) == ""


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0), (3.2, 3.3), (-5, 12000), (0.0001, 0.0002), (119.9, 120.1)])
def test_ticks_are_round_and_cover(low: float, high: float) -> None:
    found = plots.ticks(low, high)
    assert found[0] <= low + 1e-9
    assert found[-1] >= high - 1e-9
    assert 2 <= len(found) <= 12


def test_the_folder_holds_both_and_reads_back(tmp_path: Path) -> None:
    plot = Plot("bars", "t", "x", "y", {"names": ["a"], "values": [1.0]})
    made = report.build(HEAD, [result(Outcome("pass", "ok", {"detects": math.inf}, (plot,)))])
    report.write(tmp_path, made)
    again = report.read(tmp_path)
    assert again["sentence"] == "1 of 1 checks passed."
    report.write(tmp_path, again)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]
    with pytest.raises(Refusal):
        report.read(tmp_path / "nowhere")
