"""The words everything else is built of: knobs, settings, sizes, rows, plans."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from core.knob import Knob
from core.log import line
from core.plan import GroupPlan, Value, differing
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.row import Row, first_to_fix
from core.settings import resolve
from core.units import parse_size, show_size

KNOBS = {
    "TP": Knob("TP", "count", "4", "ranks"),
    "KV_CACHE_MEMORY": Knob("KV_CACHE_MEMORY", "size", None, "KV pin", unit="bytes"),
    "API_KEY": Knob("API_KEY", "text", None, "key", secret=True),
}


@given(st.integers(min_value=0, max_value=2**45))
def test_a_size_in_bytes_reads_back(count: int) -> None:
    assert parse_size(str(count)) == count
    assert parse_size(f"{count}GiB") == count * 1024**3


def test_sizes_show_both_ways() -> None:
    assert show_size(27917287424) == "26GiB"
    assert KNOBS["KV_CACHE_MEMORY"].show("12GiB") == "12884901888 (12GiB)"


def test_empty_means_unset() -> None:
    settings = resolve(KNOBS, {"TP": "", "KV_CACHE_MEMORY": ""})
    assert settings["TP"] == 4
    assert settings["KV_CACHE_MEMORY"] is None
    assert not settings.is_set("TP")


def test_every_bad_value_is_named_at_once() -> None:
    with pytest.raises(Refusals) as refused:
        resolve(KNOBS, {"TP": "four", "KV_CACHE_MEMORY": "-1"})
    assert [refusal.setting for refusal in refused.value.refusals] == ["TP", "KV_CACHE_MEMORY"]


def test_secrets_are_masked_and_not_compared() -> None:
    settings = resolve(KNOBS, {"API_KEY": "hunter2"})
    assert settings.table["API_KEY"].shown == "********"
    assert "API_KEY" not in settings.of_scope("group")


def test_the_first_thing_to_fix_is_a_failure_before_a_warning() -> None:
    rows = (Row("a", "ok", ""), Row("b", "WARN", ""), Row("c", "FAIL", ""))
    found = first_to_fix(rows)
    assert found is not None
    assert found.name == "c"
    assert first_to_fix(rows[:1]) is None


def test_the_plan_hash_ignores_sources_and_sees_values() -> None:
    one = GroupPlan(4, "switch", "gb10", {"A": Value(1, "default")})
    same = GroupPlan(4, "switch", "gb10", {"A": Value(1, "shell")})
    other = GroupPlan(4, "switch", "gb10", {"A": Value(2, "default")})
    assert one.hash() == same.hash() != other.hash()
    assert differing({"A": 1, "B": 2}, {"A": 1, "B": 3}) == {"B": (2, 3)}


def test_every_knob_of_the_registry_explains_itself_and_its_default_parses() -> None:
    for knob in registry().values():
        assert knob.why.strip(), knob.name
        if knob.default:
            knob.parse(knob.default)


ODD = st.text(max_size=200) | st.sampled_from(
    [
        "9" * 5000,
        "[" * 3000,
        "1" * 400 + "GiB",
        "\ud800",
        "a\x00b",
        "\x1b[2J",
        "\u0669",
        "host:\uff18\uff10",
        "1e400",
        "nan",
    ]
)


@given(name=st.sampled_from(sorted(registry())), text=ODD)
@hypothesis_settings(max_examples=500)
def test_any_text_is_a_value_or_a_refusal(name: str, text: str) -> None:
    """No traceback for a bad knob, and nothing that a log, a path or an argv cannot hold."""
    try:
        value = registry()[name].parse(text)
    except Refusal as refusal:
        str(refusal).encode()
    else:
        str(value).encode()
        assert "\x00" not in text


@pytest.mark.parametrize("text", ["\u0664", "\uff14", "4\x00"])
def test_a_number_is_written_in_plain_digits(text: str) -> None:
    for name in ("MAX_NUM_SEQS", "API_PORT", "READY_S", "KV_CACHE_MEMORY", "RETRIES"):
        with pytest.raises(Refusal):
            registry()[name].parse(text)


def test_an_event_is_one_line_whatever_it_tells() -> None:
    """A host name or an error of another box may hold anything: line ends, terminal codes, half a character."""
    told = line("join", "seen a\nb", host="\x1b[2Jspark\ud800", what="c\r\nd e")
    assert told == 'stage=join seen a\\nb host=\\x1b[2Jspark\\ud800 what="c\\r\\nd e"'
    told.encode()
