"""Tokens, cookies, guesses, hosts, origins, buckets, signed calls, pages, percentiles: the pure part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.metrics import parse
from core.mask import mask
from entrypoint.status.access import (
    COOKIE_S,
    GUESSES,
    Access,
    Waits,
    host_allowed,
    origin_allowed,
    own_names,
    refusals,
    token_of,
)
from entrypoint.status.fetch import Fetched
from entrypoint.status.forward import ForwardFailed, Peer, choose, judged
from entrypoint.status.limits import MOST_ADDRESSES, Buckets
from entrypoint.status.mcp.paging import LARGEST, page
from entrypoint.status.mcp.percentiles import percentiles
from entrypoint.status.mcp.state import LEVEL
from entrypoint.status.mcp.table import TOOLS
from entrypoint.status.mcp.tool import Result, ToolError
from entrypoint.status.signed import Nonces, answer_code, call_code, call_header, judge_call

TOKEN = "0123456789abcdef0123"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_opens_and_too_many_wrong_ones_wait() -> None:
    clock = Clock()
    access = Access(TOKEN, clock=clock)
    assert access.bearer(f"Bearer {TOKEN}", "a")
    for number in range(GUESSES):
        assert not access.bearer(f"Bearer guess{number}", "a")
    with pytest.raises(Waits, match="wait"):
        access.bearer(f"Bearer {TOKEN}", "a")
    assert access.bearer(f"Bearer {TOKEN}", "b")
    clock.now += 61
    assert access.bearer(f"Bearer {TOKEN}", "a")
    for number in range(5000):
        access.matches("x", f"address {number}")
    assert len(access._wrong) <= 1024


def test_without_a_token_nothing_opens() -> None:
    access = Access(None)
    assert not access.bearer("Bearer ", "a")
    assert not access.matches("", "a")
    assert not access.cookie_holds(Access("").make_cookie())
    assert "STATUS_TOKEN" in access.how
    for _ in range(GUESSES + 1):  # a token for a box that has none is no guess: what to hear is how to set one
        assert not access.bearer(f"Bearer {TOKEN}", "a")


def test_what_is_said_about_the_token_passes_the_mask_as_it_is() -> None:
    for said in (Access(None).how, Access(TOKEN).how, Access(TOKEN).wrong, Access(None).wrong):
        assert mask(said, ()) == said
    assert "wrong" in Access(TOKEN).wrong
    assert Access(None).wrong == Access(None).how


def test_a_cookie_ends_and_is_of_one_token() -> None:
    clock = Clock()
    access = Access(TOKEN, clock=clock)
    cookie = access.make_cookie()
    assert TOKEN not in cookie
    assert access.cookie_holds(cookie)
    assert not Access(TOKEN + "x", clock=clock).cookie_holds(cookie)
    until, _, code = cookie.partition(".")
    assert not access.cookie_holds(f"{int(until) + 1}.{code}")
    clock.now += COOKIE_S + 1
    assert not access.cookie_holds(cookie)


@given(st.text(max_size=80))
def test_no_text_is_a_cookie_or_a_token(text: str) -> None:
    access = Access(TOKEN)
    assert not access.cookie_holds(text)
    assert not access.bearer(text, "a") if text.partition(" ")[2].strip() != TOKEN else True


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("10.0.0.9:8082", True),
        ("127.0.0.1", True),
        ("[::1]:8082", True),
        ("spark-a:8082", True),
        ("SPARK-A.local.", True),
        ("localhost", True),
        ("page.example:8082", True),
        ("gx10-1:8082", True),
        ("evil.example:8082", False),
        ("10.0.0.9.evil.example", False),
        ("10.0.0.9:8082@evil.example", False),
        ("spark-a:8082:1", False),
        ("spark-a:99999999", False),
        ("spark-a evil", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("127.1", False),
        ("[::1", False),
        ("[::1]x", False),
        ("", False),
        (None, False),
    ],
)
def test_hosts(host: str | None, allowed: bool) -> None:
    assert host_allowed(host, own_names("spark-a.lan", "page.example,gx10-1:8082")) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://10.0.0.9:8082", True),
        ("https://10.0.0.9:8082", True),
        ("http://10.0.0.9", False),
        ("http://10.0.0.9:8083", False),
        ("http://evil.example", False),
        ("null", False),
        ("file://", False),
        ("", False),
    ],
)
def test_origins(origin: str | None, allowed: bool) -> None:
    assert origin_allowed(origin, "10.0.0.9:8082") is allowed


def test_tokens_from_a_file_and_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert token_of({"STATUS_TOKEN_FILE": str(file), "STATUS_TOKEN": "y" * 20}) == (TOKEN, "")
    file.write_text("short")
    told = refusals({"STATUS_TOKEN_FILE": str(file)}, "0.0.0.0", "10.0.0.9", 2)
    assert [one.setting for one in told] == ["STATUS_TOKEN_FILE"]
    assert "short" not in str(told[0]).replace("shorter", "")
    assert token_of({"STATUS_TOKEN_FILE": str(tmp_path / "none")})[0] is None
    assert token_of({"STATUS_TOKEN": "short"})[0] is None
    assert [one.setting for one in refusals({}, "127.0.0.1", "10.0.0.9", 2)] == ["STATUS_BIND"]
    assert refusals({}, "127.0.0.1", "10.0.0.9", 1) == ()
    assert refusals({}, "10.0.0.9", "10.0.0.9", 4) == ()


def test_buckets_are_by_address_and_of_bounded_number() -> None:
    buckets = Buckets(rate=10, burst=3)
    assert [buckets.take("a", 0) for _ in range(4)] == [0, 0, 0, 0.1]
    assert buckets.take("b", 0) == 0
    assert buckets.take("a", 0.1) == 0
    for number in range(5000):
        buckets.take(str(number), 0)
    assert len(buckets._levels) <= MOST_ADDRESSES


def test_a_call_counts_once_for_one_body_one_address_one_nonce() -> None:
    clock = Clock()
    nonces = Nonces(clock=clock)
    nonce = nonces.issue()
    good = call_header(nonce, call_code("secret", "g", "10.0.0.9", "POST", "/mcp", b"body", nonce))

    def judge(header: str, **changed: object) -> str | None:
        parts = {"secret": "secret", "group": "g", "dialled": "10.0.0.9", "method": "POST", "path": "/mcp"}
        parts |= {name: str(value) for name, value in changed.items() if name != "body"}
        body = changed.get("body", b"body")
        assert isinstance(body, bytes)
        return judge_call(header, nonces, body=body, **parts)

    for changed in ({"body": b"Body"}, {"dialled": "10.0.0.8"}, {"method": "GET"}, {"path": "/x"}, {"group": "h"}):
        assert judge(good, **changed) is None
    assert judge(good, secret="other") is None
    assert judge(good.replace(nonce[:8], "00000000")) is None
    assert judge("") is None
    assert judge("a b c") is None
    code = judge(good)
    assert code is not None
    assert judge(good) is None  # replayed
    late = nonces.issue()
    clock.now += 31
    assert judge(call_header(late, call_code("secret", "g", "10.0.0.9", "POST", "/mcp", b"body", late))) is None
    other = Nonces()  # another box, or this one started again
    foreign = other.issue()
    assert judge(call_header(foreign, call_code("secret", "g", "10.0.0.9", "POST", "/mcp", b"body", foreign))) is None
    assert answer_code("secret", "g", code, 200, b"a") != answer_code("secret", "g", code, 200, b"b")


@given(st.text(max_size=120))
def test_no_header_is_a_call(header: str) -> None:
    assert judge_call(header, Nonces(), "secret", "g", "a", "POST", "/mcp", b"") is None


def test_which_box_is_meant() -> None:
    others = [
        Peer("10.0.0.10", 8082, "spark-b"),
        Peer("10.0.0.11", 8082, "spark-c"),
        Peer("10.0.0.12", 8083, "spark-c"),
    ]
    assert choose("Spark-B", "10.0.0.9", "spark-a", 8082, others) == others[0]
    assert choose("10.0.0.12:8083", "10.0.0.9", "spark-a", 8082, others) == others[2]
    for here in ("", "self", "spark-a", "10.0.0.9", "10.0.0.9:8082"):
        assert choose(here, "10.0.0.9", "spark-a", 8082, others) is None
    with pytest.raises(ForwardFailed, match="2 boxes"):
        choose("spark-c", "10.0.0.9", "spark-a", 8082, others)
    with pytest.raises(ForwardFailed, match=r"10\.0\.0\.11"):
        choose("10.0.0.13", "10.0.0.9", "spark-a", 8082, others)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"3", b'{"result": 3}', b"[" * 100_000, b"\xff"),
        b'{"result": {"content": [], "isError": false}}',
        b'{"result": {"content": [{"type": "text", "text": 3}], "isError": false}}',
        b'{"result": {"content": [{"type": "text", "text": "a"}], "isError": 0}}',
    ],
)
def test_nonsense_of_another_box_is_told_apart(body: bytes) -> None:
    with pytest.raises(ForwardFailed, match="without a tool's result"):
        judged(Fetched(200, {}, body), "10.0.0.9")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(VALUES, max_size=8), st.integers(1, 40))
def test_every_result_is_paged_as_valid_json_within_the_cap(items: list[object], times: int) -> None:
    whole = items * times
    cursor, count = 0, 0
    for _ in range(len(whole) + 1):
        text = page(Result(whole, {"note": "n" * 9000}), cursor, {"box": "b"}, ("abcd",))
        assert len(text.encode()) <= LARGEST
        told = json.loads(text, parse_constant=lambda _: pytest.fail("not JSON"))
        count += len(told["items"])
        if told["next"] is None:
            break
        assert told["next"] > cursor
        cursor = told["next"]
    assert count == len(whole)


def test_large_items_lose_their_ends_and_stay_items() -> None:
    huge = {"text": "x" * 10**5, "list": list(range(10**4)), "deep": {str(number): "y" * 100 for number in range(1000)}}
    told = json.loads(page(Result([huge] * 5), 0, {}, ()))
    assert told["total"] == 5
    assert 1 <= len(told["items"]) <= 5
    assert "(+" in json.dumps(told["items"][0])


def test_percentiles_are_bounds_of_buckets_and_infinity_is_more_than() -> None:
    def reading(low: int, middle: int, all_: int) -> str:
        name = "vllm:time_to_first_token_seconds_bucket"
        rows = [(0.1, low), (0.5, middle), ("+Inf", all_)]
        halves = [f'{name}{{le="{bound}",engine="{engine}"}} {count}' for engine in (0, 1) for bound, count in rows]
        return "\n".join(halves)

    found = percentiles(parse(reading(0, 0, 0)), parse(reading(50, 95, 100)), "time_to_first_token")
    assert found["observations"] == 200
    assert found["p50"] == {"at_most_s": 0.1}
    assert found["p90"] == {"at_most_s": 0.5}
    assert found["p99"] == {"more_than_s": 0.5}
    json.dumps(found, allow_nan=False)
    assert percentiles(parse(reading(1, 1, 1)), parse(reading(1, 1, 1)), "time_to_first_token") == {
        "histogram": "time_to_first_token",
        "observations": 0,
    }
    restarted = percentiles(parse(reading(50, 95, 100)), parse(reading(1, 1, 1)), "time_to_first_token")
    assert restarted["observations"] == 2


def test_the_document_tells_every_tool_as_it_is() -> None:
    text = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    told = {row[0]: (row[2].split(", ") if row[2] else [], row[3] == "yes", row[4] == "yes") for row in rows[1:]}
    real = {tool.name: ([one.name for one in tool.arguments], tool.reads_files, tool.node) for tool in TOOLS}
    assert told == real


def test_a_choice_that_is_none_is_told_the_choices_and_no_empty_one() -> None:
    with pytest.raises(ToolError, match=r"expected one of FAIL, WARN, ok, info$"):
        LEVEL.read("bad")
