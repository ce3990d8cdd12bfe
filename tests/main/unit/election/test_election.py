"""Who is head, and what is refused on all boxes: each with the box and the setting in the sentence."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.refusal import Refusal
from entrypoint.election import Candidate, Elected, conflicts, elect, two_instances

NINE = Candidate("10.0.0.9", "spark-9", 2)
TEN = Candidate("10.0.0.10", "spark-10", 2)


def head(*boxes: Candidate) -> Elected:
    result = elect(boxes)
    assert isinstance(result, Elected), result
    return result


def refused(*boxes: Candidate) -> tuple[Refusal, ...]:
    """The refusals, which must not depend on the order in which a box sees the others."""
    results = {elect(order) for order in itertools.permutations(boxes)}
    assert len(results) == 1
    result = results.pop()
    assert isinstance(result, tuple), result
    return result


def test_the_numerically_lowest_address_is_head() -> None:
    outcome = head(TEN, NINE)
    assert outcome.order == ("10.0.0.9", "10.0.0.10")
    assert outcome.line == "election: head 10.0.0.9 (the lowest lan address), TP=2, ranks 0=10.0.0.9 1=10.0.0.10"


def test_nobody_is_elected_before_exactly_tp_boxes_are_here() -> None:
    assert elect([NINE]) is None
    assert elect([replace(NINE, tp=3), replace(TEN, tp=3)]) is None


@pytest.mark.parametrize("wanted", ["10.0.0.10", "spark-10", "SPARK-10.local", "spark-10.lan.example"])
def test_head_host_fixes_it_by_address_or_name(wanted: str) -> None:
    assert head(replace(NINE, head_host=wanted), replace(TEN, head_host=wanted)).head == "10.0.0.10"


def test_two_spellings_of_one_head_are_one_head() -> None:
    assert head(replace(NINE, head_host="10.0.0.10"), replace(TEN, head_host="spark-10")).head == "10.0.0.10"


def test_roles_fix_it() -> None:
    assert head(replace(NINE, role="worker"), replace(TEN, role="head")).head == "10.0.0.10"


def test_role_and_head_host_may_say_the_same() -> None:
    boxes = (replace(NINE, role="worker", head_host="spark-10"), replace(TEN, role="head", head_host="spark-10"))
    assert head(*boxes).head == "10.0.0.10"


@pytest.mark.parametrize(
    ("nine", "ten", "setting", "words"),
    [
        ({"tp": 2}, {"tp": 4}, "TP", ["2 on spark-9", "4 on spark-10"]),
        ({"head_host": "10.0.0.9"}, {"head_host": "10.0.0.10"}, "HEAD_HOST", ["two heads", "spark-9", "spark-10"]),
        ({"head_host": "10.0.0.9"}, {}, "HEAD_HOST", ["unset on spark-10"]),
        ({"role": "head"}, {}, "ROLE", ["head on spark-9", "unset on spark-10"]),
        ({"role": "head"}, {"role": "head"}, "ROLE", ["two heads", "spark-9", "spark-10"]),
        ({"role": "worker"}, {"role": "worker"}, "ROLE", ["worker on all 2 boxes"]),
        ({"head_host": "10.0.0.77"}, {"head_host": "10.0.0.77"}, "HEAD_HOST", ["10.0.0.77", "none of"]),
        (
            {"head_host": "10.0.0.10", "role": "head"},
            {"head_host": "10.0.0.10", "role": "worker"},
            "ROLE",
            ["head on spark-9", "HEAD_HOST=10.0.0.10"],
        ),
        ({"settings": {"MAX_NUM_SEQS": "8"}}, {}, "MAX_NUM_SEQS", ["8 on spark-9", "unset on spark-10"]),
        (
            {"settings": {"SPEC_METHOD": "mtp"}},
            {"settings": {"SPEC_METHOD": "none"}},
            "SPEC_METHOD",
            ["mtp on spark-9", "none on spark-10"],
        ),
    ],
)
def test_refused_alike_on_all_boxes(
    nine: dict[str, object], ten: dict[str, object], setting: str, words: list[str]
) -> None:
    first = refused(replace(NINE, **nine), replace(TEN, **ten))[0]  # type: ignore[arg-type]
    assert first.setting == setting
    assert first.cure
    for word in words:
        assert word in first.seen


def test_more_boxes_than_tp_are_refused() -> None:
    found = refused(NINE, TEN, Candidate("10.0.0.11", "spark-11", 2))
    assert "spark-11" in found[0].seen
    assert found[0].expected == "exactly TP=2 boxes in the group"


def test_what_differs_is_refused_before_all_boxes_are_here() -> None:
    assert conflicts([replace(NINE, tp=4, settings={"A": "1"}), replace(TEN, tp=4, settings={"A": "2"})])


def test_a_head_that_is_not_here_yet_is_waited_for() -> None:
    boxes = (replace(NINE, tp=3, head_host="10.0.0.11"), replace(TEN, tp=3, head_host="spark-11"))
    assert elect(boxes) is None


def test_two_boxes_at_one_address_are_named_with_the_address() -> None:
    assert "10.0.0.9" in two_instances("10.0.0.9", ("aa" * 8, "bb" * 8)).setting


@given(st.lists(st.integers(1, 2**32 - 2), min_size=4, max_size=4, unique=True))
def test_every_box_elects_the_same(numbers: list[int]) -> None:
    boxes = [Candidate(str(ipaddress.IPv4Address(number)), f"b{number}", 4) for number in numbers]
    lowest = str(ipaddress.IPv4Address(min(numbers)))
    assert {head(*order).order for order in itertools.permutations(boxes)} == {head(*boxes).order}
    assert head(*boxes).head == lowest
