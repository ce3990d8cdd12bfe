"""Each planted defect turns exactly the checks red that look at it, and no other.

All servers are measured once, several side by side; then a test a defect reads its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gate.check import Check, Result
from gate.table import CHECKS
from tests.gate.harness import USUAL, excused, gate, reds, simulator_async

ALL = [check for check in CHECKS if check.quick is not None]
# What a server says and how long it takes are planted apart. Gates that judge answers run side by side; those that
# judge times run alone. With --full every gate runs every check, alone.
ANSWERS = [check for check in ALL if check.room == "right" or check.name in ("speed", "preemptions")]
TIMES = [check for check in ALL if check.room != "right" and check.name != "speed"]
AT_ONCE = 4
# A machine that is busy with something else slows a healthy server too: a time is measured again until its verdict is
# the expected one. A check that accuses or acquits wrongly does so in every try.
TRIES = 4

# defect -> how the server behaves, and the checks that must be red
SAID: dict[str, tuple[dict[str, Any], set[str]]] = {
    "none": ({}, set()),
    "budget not kept": ({"defect": "max_tokens"}, {"max_tokens"}),
    "context not refused": ({"defect": "context_limit"}, {"context"}),
    "no reasoning": ({"defect": "thinking_on"}, {"reasoning"}),
    "effort ignored": ({"defect": "effort"}, {"reasoning"}),
    # the speed check counts too, in its own class of prompt
    "wrong line in a count": ({"defect": "count"}, {"count", "speed"}),
    "weights shifted": ({"nll_shift": 0.05}, {"nll"}),
    "cache drifts": ({"rescore_drift": 0.5}, {"longreply"}),
    "endless repetition": ({"defect": "repeat"}, {"longreply"}),
    "wrong cell": ({"defect": "image"}, {"image"}),
    "broken Korean": ({"defect": "scripts"}, {"scripts"}),
    "streamed arguments garbled": ({"defect": "tools"}, {"tools"}),
    "broken history refused": ({"defect": "history"}, {"history"}),
    "agent answers wrongly": ({"defect": "agent"}, {"agent"}),
    "agent uses wrong keys": ({"defect": "agent_arguments"}, {"agent"}),
    "no prefix cache": ({"page": 0}, {"prefix"}),
    "greedy answers vary": ({"random_order": True}, {"determinism"}),
    "needle misread": ({"defect": "needle"}, {"needle"}),
    "preemptions": ({"preemptions": 1}, {"preemptions"}),
    "replacement characters": ({"defect": "speed_chars"}, {"speed"}),
    # the budget is judged by usage, and so is the server's own counter
    "usage ten percent too high": ({"usage": "wrong"}, {"max_tokens", "speed"}),
}
TIMED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    # both look at short requests beside long prompts
    "prefill stops the others": ({"exclusive_prefill": True}, {"short", "three"}),
    "prefills disturb each other": ({"crowding": 0.6}, {"three"}),
    "newcomer waits out an answer": ({"slots": 4}, {"newcomer"}),
    "prompt counted wrongly": ({"defect": "prompt_count"}, {"prefill"}),
    "decode slows with depth": ({"deep": 0.6}, {"depth"}),
    "throughput collapses under load": ({"slow_down": 2.0}, {"sweep"}),
}
PLANTED = {**SAID, **TIMED}
# CI has two minutes for the gate: the healthy server and some defects there, all of them with --full.
SHORT = ("none", *tuple(SAID)[1::5], "nothing", "prompt counted wrongly")


def shortened(names: Iterable[str]) -> list[Any]:
    """The names as parameters; those that CI leaves out are marked `full`."""
    return [pytest.param(name, marks=() if name in SHORT else pytest.mark.full) for name in names]


async def one(name: str, folder: Path, checks: list[Check], reference: Path | None) -> list[Result]:
    how = PLANTED[name][0] if name in PLANTED else {}
    async with simulator_async(**{**USUAL, **how}) as base:
        out = folder / name.replace(" ", "-")
        (out / "runs").mkdir(parents=True)
        return await gate(base, checks, out=out, nll_reference=reference)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The likelihoods of a healthy server, as a first gate records them."""
    folder = tmp_path_factory.mktemp("reference")
    nll = [check for check in ALL if check.name == "nll"]
    first = asyncio.run(one("reference", folder, nll, None))
    assert first[0].outcome.verdict == "inconclusive"
    return folder / "reference" / "nll.json"


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recorded: Path
) -> dict[str, list[Result]]:
    folder = tmp_path_factory.mktemp("said")
    wanted = [name for name in SAID if name in SHORT or request.config.getoption("-m") != "not full"]

    async def every() -> dict[str, list[Result]]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def slot(name: str) -> list[Result]:
            async with slots:
                return await one(name, folder, ANSWERS, recorded)

        return dict(zip(wanted, await asyncio.gather(*map(slot, wanted)), strict=True))

    return asyncio.run(every())


def explained(results: list[Result]) -> dict[str, str]:
    return {result.check: f"{result.outcome.verdict}: {result.outcome.reason}" for result in results}


@pytest.mark.parametrize("name", shortened(SAID))
def test_a_wrong_answer_turns_exactly_its_checks_red(said: dict[str, list[Result]], name: str) -> None:
    assert reds(said[name]) == SAID[name][1], explained(said[name])


@pytest.mark.parametrize("name", shortened(TIMED))
def test_a_wrong_time_turns_exactly_its_checks_red(name: str, tmp_path: Path) -> None:
    for number in range(TRIES):
        results = asyncio.run(one(name, tmp_path / str(number), TIMES, None))
        if reds(results) == TIMED[name][1] and not excused(results):
            break
    assert reds(results) == TIMED[name][1], explained(results)


@pytest.mark.full
@pytest.mark.parametrize("name", list(PLANTED))
def test_every_check_against_every_defect(name: str, tmp_path: Path, recorded: Path) -> None:
    results = asyncio.run(one(name, tmp_path, ALL, recorded))
    assert reds(results) == PLANTED[name][1], explained(results)


def test_a_healthy_server_decides_every_check_of_right(said: dict[str, list[Result]]) -> None:
    """No check may hide behind `inconclusive` on a server that has everything."""
    results = [result for result in said["none"] if result.room == "right"]
    assert {result.outcome.verdict for result in results} == {"pass"}, explained(results)


def test_every_quick_check_has_a_defect_that_turns_it_red() -> None:
    covered = set().union(*(red for _, red in PLANTED.values()))
    assert covered == {check.name for check in ALL}


@pytest.mark.parametrize(("drift", "verdict"), [(0.0, "pass"), (0.02, "fail")])
def test_a_soak_that_slows_down_is_seen(drift: float, verdict: str) -> None:
    soak = [check for check in CHECKS if check.name == "soak"]

    async def once() -> list[Result]:
        async with simulator_async(**USUAL, drift=drift) as base:
            return await gate(base, soak)

    for _ in range(TRIES):
        results = asyncio.run(once())
        if results[0].outcome.verdict == verdict:
            break
    assert results[0].outcome.verdict == verdict, explained(results)
