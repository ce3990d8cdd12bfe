"""The machine in every order of events that a number of faults allows; the counts are printed (pytest -s)."""

from __future__ import annotations

import time
from functools import cache
from itertools import permutations
from typing import Any

import pytest

from group import machine
from group.view import Record
from tests.stays_up.explorer import Explorer, State
from tests.stays_up.reduction import Reduction


def explore(size: int, faults: int) -> Explorer:
    began = time.process_time()
    explorer = Explorer(size, faults, coarse=size > 2)
    states = explorer.run()
    took = time.process_time() - began
    print(
        f"{size} members, {faults} faults: {states} states ({' + '.join(map(str, explorer.layers))} by faults that it "
        f"takes to reach them), {explorer.transitions} transitions, {took:.1f} s of CPU"
    )
    return explorer


@pytest.mark.parametrize(("size", "faults"), [(2, 4), (3, 1), (4, 1)])
def test_no_order_of_faults_breaks_a_rule_or_keeps_the_group_from_serving(size: int, faults: int) -> None:
    layers = explore(size, faults).layers
    assert len(layers) == faults + 1
    assert sum(layers) > 1_000


@pytest.mark.full
@pytest.mark.parametrize(("size", "faults"), [(3, 2), (3, 3), (4, 2)])
def test_with_more_faults_and_members(size: int, faults: int) -> None:
    assert len(explore(size, faults).layers) == faults + 1


def spelled(explorer: Explorer, states: set[State]) -> set[Any]:
    """The states with all workers' orders, without the numbers that an explorer gives to what it has met."""
    same, found = Reduction(explorer), set()

    @cache
    def own(number: int) -> str:
        return repr(explorer.owns[number])

    @cache
    def view(number: int) -> str:
        return "" if number < 0 else f"{own(explorer.views[number][0])} {explorer.views[number][1]}"

    for state in states:
        for order in permutations(range(1, explorer.size)):
            members, _, flights, accepted, _ = same(state, (0, *order))
            spelt = [
                (own(one[0]), one[1], tuple((view(seen[0]), *seen[1:]) for seen in one[2]))  # type: ignore[union-attr]
                if one[0] >= 0
                else one
                for one in members
            ]
            ways = sorted((asker, asked, view(number), fresh) for asker, asked, number, fresh in flights)
            found.add((*spelt, *ways, accepted))
    return found


@pytest.mark.parametrize(("size", "faults"), [(2, 2), (3, 1), (4, 0)])
def test_the_reduction_leaves_out_names_only(size: int, faults: int) -> None:
    whole = Explorer(size, faults, coarse=size > 2, reduced=False)
    reduced = Explorer(size, faults, coarse=size > 2)
    every, kept = set[State](), set[State]()
    whole.run(keep=every)
    reduced.run(keep=kept)
    assert len(kept) < len(every)
    assert spelled(whole, every) == spelled(reduced, kept)


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
