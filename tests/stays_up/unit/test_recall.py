"""Whose end it was: a box that went, began anew or was told to end, and one whose own engine ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from entrypoint.watch import recall
from group.machine import Sight
from group.view import Record, Seat, State, View

HERE, THERE = "10.0.0.1", "10.0.0.2"
RECORD = Record("ab", 1, (Seat(0, HERE, HERE, "aa", 0), Seat(1, THERE, THERE, "bb", 0)), "p", 20000, 20001)


def gone(state: State, reason: str = "", instance: str = "bb", refused_began: float = -1.0) -> str:
    view = View(THERE, 8082, instance, 0, 1, state, 1, record=RECORD, reason=reason)
    sights = {THERE: Sight(view, began=5.0, refused_began=refused_began)}
    need = (None, SimpleNamespace(own=SimpleNamespace(record=RECORD)), SimpleNamespace(sights=lambda: sights))
    boot: Any = SimpleNamespace(lan=HERE, need=lambda: need)
    return recall._gone(boot)


@pytest.mark.parametrize(
    "seen",
    [
        {"state": "running", "refused_began": 6.0},
        {"state": "joining", "instance": "cc"},
        {"state": "leaving", "reason": "told to end"},
        {"state": "stopping", "reason": "this box was told to end"},
    ],
    ids=["refuses connections", "started again", "leaves", "begins to leave"],
)
def test_a_box_that_went_is_named(seen: dict[str, Any]) -> None:
    assert gone(**seen) == THERE


@pytest.mark.parametrize("reason", ["", "the engine of this box ended"])
@pytest.mark.parametrize("state", ["running", "stopping"])
def test_a_box_that_is_there_is_not(state: State, reason: str) -> None:
    assert gone(state, reason) == ""
