"""compare on synthetic run files: what it refuses, what it tells apart, and how often it is wrong."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from core.refusal import Refusal
from gate import stats
from gate.speed import compare
from gate.speed.measure import summary

WORKS = ("code", "prose", "structured", "counting", "mixed4", "mixed8")
PAIRS = {"mixed4": 10, "mixed8": 10}


def run_file(draw: np.random.Generator, cv: float, gain: float = 0.0, works: tuple[str, ...] = WORKS) -> dict[str, Any]:
    """A run file whose rates scatter by `cv` around 100 (1 + gain)."""
    sigma = math.sqrt(math.log(1 + cv * cv))
    runs = []
    for work in works:
        for index in range(PAIRS.get(work, 16)):
            rate = 100 * (1 + gain) * float(np.exp(draw.normal(0, sigma)))
            runs.append({"work": work, "i": index, "rate": rate, "tokens": 512, "decode_s": 512 / rate, "problem": "",
                         "tokens_per_step": 3.0, "ms_per_step": 3000 / rate, "ttft_s": 0.1, "per_stream": rate,
                         "drafts_per_step": 7.0, "acceptance": 0.3})  # fmt: skip
    return {"format": "glm53-speed-1", "series": "s", "params": {"runs": 16}, "conditions": {"cold": []}, "runs": runs}


def alarm(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return any(row.verdict == "differs" for row in compare.pairs(a, b))


def test_false_alarms_stay_below_the_stated_rate_over_500_comparisons() -> None:
    """Two files of one setup: at most 5 % of comparisons name any class different (three standard errors allowed)."""
    draw = np.random.default_rng(11)
    alarms = sum(alarm(run_file(draw, 0.03), run_file(draw, 0.03)) for _ in range(500))
    assert alarms / 500 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 500)
    assert alarms > 0  # a test that never speaks would pass the line above


@pytest.mark.parametrize("work", ["code", "mixed4"])
def test_power_is_what_detects_says_over_500_comparisons(work: str) -> None:
    """A gain of exactly `detects` in one class of six is found about four times out of five."""
    draw = np.random.default_rng(12)
    cv, pairs = 0.03, PAIRS.get(work, 16)
    gain = stats.detects(cv, pairs, len(WORKS))
    found = 0
    for _ in range(500):
        a, b = run_file(draw, cv), run_file(draw, cv)
        for run in b["runs"]:
            if run["work"] == work:
                run["rate"] *= 1 + gain
        found += next(row for row in compare.pairs(a, b) if row.work == work).verdict == "differs"
    # Holm is a little kinder than its worst case, so the power may be above
    assert 0.8 - 3 * math.sqrt(0.8 * 0.2 / 500) <= found / 500 <= 0.9


def test_the_summary_and_the_comparison_state_detects_alike() -> None:
    draw = np.random.default_rng(13)
    a, b = run_file(draw, 0.03), run_file(draw, 0.03)
    stated = summary(a["runs"])["code"]["detects"]
    row = next(row for row in compare.pairs(a, b) if row.work == "code")
    assert row.detects == pytest.approx(stated, rel=0.6)  # one from 16 runs, the other from 16 pairs


def test_a_gain_is_split_into_drafting_and_step_time() -> None:
    draw = np.random.default_rng(14)
    a = run_file(draw, 0.0)
    b = copy.deepcopy(a)
    for run in b["runs"]:
        run["tokens_per_step"] *= 1.10
        run["ms_per_step"] *= 1.05
        run["rate"] *= 1.10 / 1.05
    for row in compare.pairs(a, b):
        assert row.drafting == pytest.approx(1.10)
        assert row.step == pytest.approx(1.05)
        assert row.ratio == pytest.approx(1.10 / 1.05)
        assert row.verdict == "differs"
        assert row.low <= row.ratio <= row.high


def test_runs_with_a_problem_are_dropped_on_both_sides() -> None:
    draw = np.random.default_rng(15)
    a, b = run_file(draw, 0.01), run_file(draw, 0.01)
    a["runs"][0]["problem"] = "wrong count"
    b["runs"][1]["problem"] = "empty"
    row = next(row for row in compare.pairs(a, b) if row.work == "code")
    assert (row.pairs, row.dropped) == (14, 2)


def test_cold_files_are_refused_with_the_reason() -> None:
    draw = np.random.default_rng(16)
    a, b = run_file(draw, 0.01), run_file(draw, 0.01)
    b["conditions"]["cold"] = ["a weight snapshot was written in this boot"]
    with pytest.raises(Refusal, match="snapshot"):
        compare.pairs(a, b)


@pytest.mark.parametrize(("key", "value"), [("series", "other"), ("params", {"runs": 3})])
def test_other_prompts_are_refused(key: str, value: Any) -> None:
    draw = np.random.default_rng(17)
    a, b = run_file(draw, 0.01), run_file(draw, 0.01)
    b[key] = value
    with pytest.raises(Refusal):
        compare.pairs(a, b)


def test_nothing_that_pairs_is_refused() -> None:
    draw = np.random.default_rng(18)
    with pytest.raises(Refusal):
        compare.pairs(run_file(draw, 0.01, works=("code",)), run_file(draw, 0.01, works=("prose",)))


def test_the_table_says_never_where_pairs_cannot_show_anything() -> None:
    draw = np.random.default_rng(19)
    a, b = run_file(draw, 0.01), run_file(draw, 0.01)
    for file in (a, b):
        file["runs"] = [run for run in file["runs"] if run["i"] < 5]
    assert all("never" in line for line in compare.table(compare.pairs(a, b))[1:])
