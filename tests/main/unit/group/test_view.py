"""/member.json: what is written is read back; whatever else arrives is a NotVerified or ValueError, never a crash."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group.signing import NotVerified, answer, code, verify
from group.view import HIGHEST_EPOCH, About, Record, Seat, View, by_address, parse_view
from preflight.facts.types import Interface

RECORD = Record("ab", 5, (Seat(0, "10.0.0.9", "10.1.0.9", "aa", 0),), "plan", 20010, 20011)
LAN = Interface("eth0", ("10.0.0.9/24",), 1500, True)
VIEW = View(
    "10.0.0.9",
    8082,
    "aa",
    0,
    7,
    "accepted",
    5,
    "10.0.0.9",
    "plan",
    RECORD,
    about=About("spark", tp=4, interfaces=(LAN,)),
)
NONCE = "0123456789abcdef" * 2

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_a_view_survives_the_wire() -> None:
    assert parse_view(VIEW.as_json()) == VIEW


def read(data: object) -> View | str:
    """The view, or what is wrong with it; any other exception fails the test."""
    try:
        return parse_view(json.dumps(data))
    except ValueError as error:
        return str(error)


@given(st.binary(max_size=300) | st.text(max_size=300))
def test_garbage_is_an_error_that_says_so(garbage: bytes | str) -> None:
    with pytest.raises(ValueError):
        parse_view(garbage)


@given(st.sampled_from(sorted(json.loads(VIEW.as_json()))), JSON)
def test_any_field_of_any_type_is_a_view_or_an_error(name: str, value: object) -> None:
    data = json.loads(VIEW.as_json())
    data[name] = value
    assert isinstance(read(data), View | str)


@given(st.sampled_from(sorted(json.loads(VIEW.as_json())["about"])), JSON)
def test_any_field_about_a_box_too(name: str, value: object) -> None:
    data = json.loads(VIEW.as_json())
    data["about"][name] = value
    assert isinstance(read(data), View | str)


def test_deep_nesting_and_size_are_refused() -> None:
    with pytest.raises(ValueError):
        parse_view('{"record":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="larger"):
        parse_view(b" " * 300_000)


def test_addresses_are_in_numeric_order() -> None:
    assert sorted(["10.0.0.10", "10.0.0.9"], key=by_address) == ["10.0.0.9", "10.0.0.10"]


# -- the signature


def test_with_the_same_secret_an_answer_is_verified() -> None:
    assert verify(answer(VIEW, "g", "10.0.0.9", NONCE, "s"), "g", "10.0.0.9", NONCE, "s") == VIEW
    assert verify(answer(VIEW, "g", "10.0.0.9", NONCE, None), "g", "10.0.0.9", NONCE, None) == VIEW


@pytest.mark.parametrize(
    ("group", "dialled", "nonce", "secret", "why"),
    [
        ("h", "10.0.0.9", NONCE, "s", "group"),
        ("g", "10.0.0.8", NONCE, "s", "signature"),
        ("g", "10.0.0.9", "f" * 32, "s", "nonce"),
        ("g", "10.0.0.9", NONCE, "t", "signature"),
    ],
)
def test_what_was_asked_of_another_does_not_count(group: str, dialled: str, nonce: str, secret: str, why: str) -> None:
    with pytest.raises(NotVerified, match=why):
        verify(answer(VIEW, "g", "10.0.0.9", NONCE, "s"), group, dialled, nonce, secret)


def test_a_box_in_the_middle_cannot_rewrite_what_it_relays() -> None:
    relayed = json.loads(answer(VIEW, "g", "10.0.0.9", NONCE, "s"))
    for name, value in (
        ("dialled", "10.0.0.66"),
        ("body", relayed["body"].replace("accepted", "leaving")),
        ("mac", None),
    ):
        with pytest.raises(NotVerified):
            verify(json.dumps({**relayed, name: value}).encode(), "g", "10.0.0.66", NONCE, "s")


def test_an_unsigned_answer_does_not_count_where_a_secret_is_set() -> None:
    with pytest.raises(NotVerified, match="GROUP_SECRET"):
        verify(answer(VIEW, "g", "10.0.0.9", NONCE, None), "g", "10.0.0.9", NONCE, "s")


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_answers_are_not_verified(garbage: bytes) -> None:
    with pytest.raises(NotVerified):
        verify(garbage, "g", "10.0.0.9", NONCE, "s")


def test_parts_cannot_be_shifted_into_each_other() -> None:
    assert code("s", "ab", "c", NONCE, "x") != code("s", "a", "bc", NONCE, "x")


def about(name: str, value: object) -> View | str:
    data = json.loads(VIEW.as_json())
    data["about"][name] = value
    return read(data)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 10**400, "\u0661e9"])
def test_numbers_of_an_interface_that_are_none(number: object) -> None:
    """Python writes and reads Infinity in JSON."""
    for name in ("mtu", "speed"):
        interface = {"name": "e", "addresses": [], "mtu": 1500, "carrier": True, "wireless": False, "loopback": False}
        assert isinstance(about("interfaces", [{**interface, "connectx": False, name: number}]), View | str)


def test_half_a_character_is_refused_wherever_it_stands() -> None:
    """A page or a log could not show it: the box that tells it would stop all others."""
    assert "half a character" in str(about("hostname", "spark\ud800"))
    assert "half a character" in str(about("settings", {"A\udfff": "1"}))
    assert "half a character" in str(about("refusals", ["\udc80"]))


def test_an_epoch_that_leaves_no_room_for_the_next_is_refused() -> None:
    data = json.loads(VIEW.as_json())
    assert "epoch" in str(read({**data, "epoch": HIGHEST_EPOCH + 1}))
    assert "epoch" in str(read({**data, "record": {**data["record"], "epoch": HIGHEST_EPOCH + 1}}))
