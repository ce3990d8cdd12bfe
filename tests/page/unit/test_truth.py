"""The sentence: every situation a cluster can be in, in words; the same on every page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.status.truth import Box, Facts, cause, judge, sentence

A, B, C, D = "10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12"
SEATS = (A, B, C, D)
NAMES = dict(zip(SEATS, ("a", "b", "c", "d"), strict=True))


def box(lan: str, **more: Any) -> Box:
    return Box(lan, f"{NAMES[lan]} ({lan})", **{"state": "running", "stage": "Watch", "step": "serving", **more})


def facts(changes: dict[str, dict[str, Any]] | None = None, **more: Any) -> Facts:
    """Four boxes that serve; `changes` by address."""
    changes = changes or {}
    base: dict[str, Any] = {
        "tp": 4,
        "model": "glm53",
        "boxes": tuple(box(lan, **changes.get(lan, {})) for lan in SEATS),
        "seats": SEATS,
        "together": True,
        "selftest": "passed",
        "answered_s": 3.0,
        "stepped_s": 3.0,
    }
    return Facts(**{**base, **more})


def before(**more: Any) -> Facts:
    """Four boxes without a generation."""
    told = {"state": "joining", "stage": "Find the other boxes", "step": "", **more}
    return facts(dict.fromkeys(SEATS, told), seats=(), together=False, selftest="pending", answered_s=None)


SILENT = {D: {"heard_s": 12.0}}
ENGINE_C: dict[str, dict[str, Any]] = {
    A: {"state": "stopping", "ended": f"{C} is stopping: the engine of this box ended", "ended_s": 1.0},
    B: {"state": "stopping", "ended": "the engine of this box ended (exit status 1)", "ended_s": 1.0},
    C: {"state": "stopping", "ended": "the engine of this box ended (exit status -9)", "ended_s": 1.6},
    D: {"state": "stopping", "ended": "the engine of this box ended (exit status 1)", "ended_s": 0.9},
}
KILLED_C: dict[str, dict[str, Any]] = {
    A: {"state": "joining", "ended": f"{C} refuses connections: its kit is gone", "ended_s": 2.0},
    B: {"state": "joining", "ended": "the engine of this box ended (exit status 1)", "ended_s": 2.2},
    C: {"gone": True, "heard_s": 3.0},
    D: {"state": "joining", "ended": "", "ended_s": 0.0},
}
TABLE: dict[str, tuple[Facts, bool, str]] = {
    # -- boot from zero to serving
    "first moments": (
        Facts(0, "glm53", (Box("", "a", stage="Read the knobs"),)),
        False,
        "Starting: a at “Read the knobs”",
    ),
    "alone": (
        replace(before(), boxes=(box(A, state="joining", stage="Find the other boxes", step=""),)),
        False,
        "Waiting: 1 of 4 boxes are here",
    ),
    "all here": (before(), False, f"Starting: a ({A}) at “Find the other boxes”"),
    "launching": (
        facts(
            {A: {"stage": "Launch vLLM", "step": "vLLM runs as pid 7"}},
            together=False,
            selftest="pending",
            answered_s=None,
        ),
        False,
        f"Starting: a ({A}) at “Launch vLLM” – vLLM runs as pid 7",
    ),
    "loading": (
        facts(
            {A: {"stage": "Prove it", "step": "waiting for vLLM's API"}},
            selftest="pending",
            answered_s=None,
            stepped_s=None,
        ),
        False,
        f"Starting: a ({A}) at “Prove it” – waiting for vLLM's API",
    ),
    "serving": (facts(), True, "Serving: glm53 on 4 boxes"),
    "serving, not tested": (facts(selftest="off"), True, "Serving: glm53 on 4 boxes, not self-tested (SELF_TEST=0)"),
    "random weights": (
        facts(selftest="failed-as-expected"),
        True,
        "Serving: glm53 on 4 boxes, a model of random weights",
    ),
    # -- a box killed: its kit restarts, or stays away
    "box killed": (
        facts({C: {"gone": True, "heard_s": 0.4}}),
        False,
        f"Restarting: c ({C}) is gone: its kit refuses connections",
    ),
    "box stays away": (
        facts(KILLED_C, seats=(), together=False, selftest="pending", answered_s=None),
        False,
        f"Waiting: 3 of 4 boxes are here; c ({C}) has no kit running",
    ),
    "box is back": (
        facts(
            {**KILLED_C, C: {"state": "joining"}, A: {**KILLED_C[A], "stage": "Prove it", "step": ""}},
            selftest="pending",
        ),
        False,
        f"Starting: a ({A}) at “Prove it” (before: c ({C}) refuses connections: its kit is gone)",
    ),
    "power cut": (
        replace(before(), boxes=(*before().boxes[:3], box(D, state="joining", heard_s=9.0))),
        False,
        f"Waiting: 3 of 4 boxes are here; d ({D}) does not answer",
    ),
    # -- a box paused
    "just quiet": (
        facts({D: {"heard_s": 6.0}}, answered_s=20.0, stepped_s=20.0),
        True,
        f"Serving: glm53 on 4 boxes; d ({D}) is silent on the LAN",
    ),
    "paused": (
        facts(SILENT, answered_s=14.0, stepped_s=14.0),
        False,
        f"Not healthy: d ({D}) is silent, and no token since proves its rank alive",
    ),
    "LAN silent": (
        facts(SILENT),
        True,
        f"Serving: glm53 on 4 boxes; d ({D}) is silent on the LAN, but its rank works",
    ),
    "head paused": (
        facts({A: {"heard_s": 14.0}}, answered_s=15.0, stepped_s=15.0),
        False,
        f"Not healthy: a ({A}) is silent, and no token since proves its rank alive",
    ),
    # -- a worker's engine killed
    "engine killed": (
        facts(ENGINE_C),
        False,
        f"Restarting: the engine of c ({C}) ended (exit status -9)",
    ),
    "wedged": (
        facts(alarm="wedged: 2 requests in the engine, and for 180s no token"),
        False,
        "Restarting: wedged: 2 requests in the engine, and for 180s no token",
    ),
    # -- self-test failed
    "self-test failed": (
        facts(selftest="failed", failed="capital of Japan: the the the (1.0 s)"),
        False,
        "Not healthy: the self-test failed (capital of Japan: the the the (1.0 s)); the API answers, but do not trust "
        "what it says",
    ),
    # -- a refusal
    "refusal": (
        replace(before(), boxes=(*before().boxes[:3], box(D, state="refused", refusals=("TP: seen 3",)))),
        False,
        f"Refused: d ({D}) refuses TP: seen 3",
    ),
    "all refuse": (
        before(state="refused", refusals=("MAX_MODEL_LEN: seen 9",)),
        False,
        "Refused: every box refuses MAX_MODEL_LEN: seen 9",
    ),
    "a stranger refuses": (
        replace(
            facts(own=A), boxes=(*facts().boxes[:2], box(C, state="refused", refusals=("TP: seen 3",))), seats=SEATS[:2]
        ),
        True,
        f"Serving: glm53 on 2 boxes; c ({C}) is not part of it and refuses TP: seen 3",
    ),
    "its own page": (
        replace(
            facts(own=C, tp=2),
            boxes=(*facts().boxes[:2], box(C, state="refused", refusals=("TP: seen 3",))),
            seats=(),
        ),
        False,
        f"Refused: c ({C}) refuses TP: seen 3",
    ),
    "left out": (
        replace(facts(own=C, tp=2), boxes=(*facts().boxes[:2], box(C, state="joining")), seats=()),
        False,
        f"Waiting: this box is not part of the generation of a ({A}) and b ({B})",
    ),
    # -- truth beyond the situations above
    "no answer for a minute": (
        facts(answered_s=61.0, stepped_s=61.0),
        False,
        "Not healthy: every box is there, but the engine has answered nothing for more than a minute",
    ),
    "never answered": (
        facts(answered_s=None, stepped_s=None, selftest="off"),
        False,
        "Not healthy: every box is there, but the engine has answered nothing for more than a minute",
    ),
    "long prefill": (facts(answered_s=300.0, stepped_s=2.0, running=1), True, "Serving: glm53 on 4 boxes"),
    "idle, and no step counts": (
        facts(answered_s=300.0, stepped_s=2.0, running=0),
        False,
        "Not healthy: every box is there, but the engine has answered nothing for more than a minute",
    ),
    "driver out of memory": (
        facts({B: {"alarms": ("the GPU driver is out of memory",)}}),
        True,
        f"Serving: glm53 on 4 boxes; b ({B}): the GPU driver is out of memory",
    ),
    "compiling inside requests": (
        facts(compiling="ptxas", running=3),
        True,
        "Serving: glm53 on 4 boxes; still compiling kernels inside requests",
    ),
    "told to end": (facts({B: {"state": "leaving"}}), False, f"Stopping: b ({B}) was told to end"),
    "five for four": (
        replace(before(), tp=3),
        False,
        f"Waiting: 4 boxes are here for TP=3: a ({A}), b ({B}), c ({C}) and d ({D})",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_situation_has_its_sentence(name: str) -> None:
    known, healthy, words = TABLE[name]
    assert sentence(known) == words
    assert judge(known).healthy is healthy


def test_every_mood_fits_its_verdict() -> None:
    for known, healthy, _ in TABLE.values():
        assert (judge(known).mood in ("good", "warn")) == healthy
    assert judge(facts()).mood == "good"
    assert judge(facts(compiling="nvcc", running=1)).mood == "warn"


def test_ages_that_run_do_not_change_the_words() -> None:
    for known, _, words in TABLE.values():
        later = replace(
            known,
            boxes=tuple(replace(one, ended_s=one.ended_s + 0.8) for one in known.boxes),
            answered_s=None if known.answered_s is None else known.answered_s + 0.8,
        )
        assert sentence(later) == words


def test_the_first_engine_to_end_is_the_one_that_is_named() -> None:
    boxes = [box(lan, **ENGINE_C[lan]) for lan in SEATS]
    assert cause(boxes) == f"the engine of c ({C}) ended (exit status -9)"
    assert cause([one for one in boxes if one.lan == A]) == f"{C} is stopping: the engine of this box ended"


AGES = st.one_of(st.none(), st.floats(0, 1000))
BOXES = st.builds(
    Box,
    lan=st.sampled_from(SEATS),
    name=st.sampled_from(list(NAMES.values())),
    heard_s=st.floats(0, 100),
    gone=st.booleans(),
    state=st.sampled_from(["", "joining", "ready", "running", "stopping", "refused", "leaving"]),
    stage=st.sampled_from(["Prove it", "Watch"]),
    refusals=st.lists(st.just("TP: seen 3"), max_size=2).map(tuple),
    ended=st.sampled_from(["", "the engine of this box ended", f"{C} started again"]),
)


@given(
    st.builds(
        Facts,
        tp=st.sampled_from([0, 2, 4]),
        model=st.just("m"),
        boxes=st.lists(BOXES, min_size=1, max_size=4, unique_by=lambda one: one.lan).map(tuple),
        seats=st.sampled_from([(), SEATS[:2], SEATS]),
        together=st.booleans(),
        selftest=st.sampled_from(["pending", "passed", "failed", "off", "failed-as-expected"]),
        answered_s=AGES,
        stepped_s=AGES,
        running=st.integers(0, 3),
    )
)
def test_healthy_means_every_rank_alive_and_a_young_answer(known: Facts) -> None:
    verdict = judge(known)
    assert verdict.sentence
    if not verdict.healthy:
        return
    assert known.seats
    assert known.together
    assert known.selftest in ("passed", "off", "failed-as-expected")
    working = known.running > 0 and known.stepped_s is not None and known.stepped_s <= 10
    assert working or (known.answered_s is not None and known.answered_s <= 60)
    ages = [age for age in (known.answered_s, known.stepped_s) if age is not None]
    by_lan = {one.lan: one for one in known.boxes}
    for lan in known.seats:
        heard = by_lan[lan].heard_s if lan in by_lan else 20.0
        assert heard <= 10 or min(ages) < heard
        assert lan not in by_lan or not by_lan[lan].gone
