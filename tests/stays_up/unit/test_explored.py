"""The machine in every order of events that a number of faults allows; the counts are printed (pytest -s)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from group import machine
from group.view import Record
from tests.stays_up.explorer import Explorer


def explore(size: int, faults: int) -> int:
    began = time.process_time()
    explorer = Explorer(size, faults, coarse=size > 2)
    states = explorer.run()
    took = time.process_time() - began
    print(f"{size} members, {faults} faults: {states} states, {explorer.transitions} transitions, {took:.1f} s of CPU")
    return states


@pytest.mark.parametrize(("size", "faults"), [(2, 1), (2, 2), (3, 1), (4, 0)])
def test_no_order_of_faults_breaks_a_rule_or_keeps_the_group_from_serving(size: int, faults: int) -> None:
    assert explore(size, faults) > 100


@pytest.mark.full
@pytest.mark.parametrize(("size", "faults"), [(2, 4), (3, 2), (4, 1)])
def test_with_more_faults_and_members(size: int, faults: int) -> None:
    assert explore(size, faults) > 1000


def without_acceptance(own: machine.Own, moment: machine.Moment, record: Record) -> bool:
    return own.checked


def without_incarnations(own: machine.Own, moment: machine.Moment, record: Record, seat: Any) -> str:
    return ""


@pytest.mark.parametrize(
    ("rule", "broken", "said"),
    [
        ("_may_launch", without_acceptance, "not accepted by"),
        ("_seat_over", without_incarnations, "stuck for ever|does not come to serve"),
    ],
)
def test_the_exploration_finds_a_rule_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, rule: str, broken: Any, said: str
) -> None:
    monkeypatch.setattr(machine, rule, broken)
    with pytest.raises(AssertionError, match=said):
        Explorer(2, 1).run(most=20000)
