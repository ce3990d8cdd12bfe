"""size(): the numbers of a group from boxes and knobs; what is refused, and what is suggested instead."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.knob import KINDS
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.settings import Settings, resolve
from core.units import GIB, MIB
from entrypoint.sizing import BoxMemory, Sizing, size
from entrypoint.sizing.rows import compare_pool, with_engine_line

ALL = ("arx", "snapshot", "adaptive-k", "fp8", "megamoe", "drafter-pool", "sp", "recoverssm")
BOX = [BoxMemory("one", round(121.6 * GIB), round(117 * GIB))]
SPLIT = {"KV_LAYOUT": "split"}


DEFAULTS = resolve(registry(), {})


def planned(environ: dict[str, str], overlays: tuple[str, ...] = (), memory: list[BoxMemory] | None = None) -> Sizing:
    chosen = resolve({name: registry()[name] for name in environ}, environ)  # the rest is at its default each time
    return size(BOX if memory is None else memory, Settings({**DEFAULTS.table, **chosen.table}), overlays)


def attempt(
    environ: dict[str, str], overlays: tuple[str, ...] = (), memory: list[BoxMemory] | None = None
) -> Sizing | tuple[Refusal, ...]:
    try:
        return planned(environ, overlays, memory)
    except Refusals as many:
        return many.refusals
    except Refusal as one:
        return (one,)


def value(sizing: Sizing, name: str) -> object:
    return sizing.values[name].value


def refusal(environ: dict[str, str], overlays: tuple[str, ...] = ()) -> Refusal:
    found = attempt(environ, overlays)
    assert not isinstance(found, Sizing)
    return found[0]


@pytest.mark.parametrize(
    ("tp", "pin", "length", "with_all", "stock", "batch", "block"),
    [
        ("2", 8589934592, 163840, 16, 4, 8192, 4608),
        ("3", 12884901888, 524288, 64, 32, 16384, 3584),
        ("4", 27917287424, 524288, 64, 32, 16384, 2304),
        ("RING4", 27917287424, 524288, 64, 32, 16384, 2304),
        ("RING3", 12884901888, 524288, 64, 32, 16384, 3584),
        ("6", 27917287424, 524288, 64, 32, 16384, 1792),
    ],
)
def test_tuned_values_are_planned_whole_on_gb10_boxes(
    tp: str, pin: int, length: int, with_all: int, stock: int, batch: int, block: int
) -> None:
    for overlays, seqs in ((ALL, with_all), ((), stock)):
        for layout in ("packed", "split"):
            sizing = planned({"TP": tp, "KV_LAYOUT": layout}, overlays)
            assert value(sizing, "KV_CACHE_MEMORY") == pin
            assert value(sizing, "MAX_MODEL_LEN") == length
            assert value(sizing, "MAX_NUM_SEQS") == seqs
            assert value(sizing, "MAX_NUM_BATCHED_TOKENS") == batch
            assert sizing.block == block
            assert min(budget.left for budget in sizing.budgets) >= 0


def test_a_refused_pin_names_the_largest_that_fits_and_the_one_that_is_known_to_serve() -> None:
    told = refusal({"KV_CACHE_MEMORY": "28GiB"}, ("dense_fp8",))
    assert "at most 29796335616 (27.75GiB)" in told.expected
    assert "27917287424 (26GiB) is reported to serve" in told.expected
    assert (
        "reported to serve"
        not in refusal({"TP": "2", "KV_CACHE_MEMORY": "8GiB", "MAX_NUM_BATCHED_TOKENS": "16384"}).expected
    )


def test_the_throughput_profile_names_only_costs_there_are() -> None:
    wide = {row.name: row for row in planned({"PROFILE": "throughput"}, ALL).rows}["PROFILE"]
    assert "wait 2 x as long" in wide.expected
    assert "fewer tokens" in wide.expected
    tight = {row.name: row for row in planned({"PROFILE": "throughput", "TP": "3"}, ("dense_fp8",)).rows}["PROFILE"]
    assert "x as long" not in tight.expected
    assert "fewer tokens" not in tight.expected


def test_fifty_sequences_with_the_drafter_pool_alone() -> None:
    assert value(planned({}, ("drafter-pool",)), "MAX_NUM_SEQS") == 50


def test_graphs_reach_every_verified_token_up_to_512() -> None:
    assert value(planned({}), "CUDAGRAPH_MAX") == 256
    assert value(planned({}, ALL), "CUDAGRAPH_MAX") == 512
    assert value(planned({"SPEC_METHOD": "none"}), "CUDAGRAPH_MAX") == 32
    assert "CUDAGRAPH_MAX" not in planned({"CUDA_GRAPHS": "0"}).values


def test_a_prompts_share_is_a_multiple_of_the_block_and_the_difference_is_told() -> None:
    for tp, cap in (("2", 4608), ("3", 3584), ("4", 2304), ("6", 1792)):
        sizing = planned({"TP": tp})
        assert value(sizing, "LONG_PREFILL_TOKEN_THRESHOLD") == cap
        told = [row for row in sizing.rows if row.name == "LONG_PREFILL_TOKEN_THRESHOLD"]
        assert bool(told) == (cap != 2304)


def test_adaptive_k_starts_from_what_is_mounted() -> None:
    assert value(planned({"TP": "2"}, ALL), "VLLM_ADAPTIVE_K_MODEL") == "32.1,1.32,0.427"
    assert value(planned({"TP": "2"}), "VLLM_ADAPTIVE_K_MODEL") == "35.0,1.27,0.8"


def test_throughput_runs_more_at_once_and_shows_what_it_costs() -> None:
    fast, wide = planned({}, ALL), planned({"PROFILE": "throughput"}, ALL)
    assert value(wide, "MAX_NUM_SEQS") == 128
    assert value(wide, "KV_CACHE_MEMORY") == 20 * GIB
    assert value(wide, "LONG_PREFILL_TOKEN_THRESHOLD") == 4608
    assert fast.pool is not None
    assert wide.pool is not None
    assert wide.pool.tokens < fast.pool.tokens


@pytest.mark.parametrize(
    "environ",
    [
        {"TP": "4", "KV_CACHE_MEMORY": "28GiB"},
        {"TP": "3", "KV_CACHE_MEMORY": "26GiB"},
        {"TP": "2", "KV_CACHE_MEMORY": "8GiB", "MAX_NUM_BATCHED_TOKENS": "16384"},
    ],
)
@pytest.mark.parametrize("overlays", [(), ALL])
@pytest.mark.parametrize("layout", ["packed", "split"])
def test_what_is_reported_to_have_lost_a_box_is_too_tight(
    environ: dict[str, str], overlays: tuple[str, ...], layout: str
) -> None:
    told = refusal({**environ, "KV_LAYOUT": layout}, overlays)
    assert told.setting in environ
    allowed = planned({**environ, "KV_LAYOUT": layout, "ALLOW_TIGHT": "1"}, overlays)
    assert any(row.level == "WARN" and "tight" in row.name + row.seen for row in allowed.rows)


def test_the_fitted_budget_alone_separates_the_reported_outcomes() -> None:
    """Without the list of lost boxes: the same constants for all TP sizes, the original's own prefill cap."""
    original = {"LONG_PREFILL_TOKEN_THRESHOLD": "2304", "KV_LAYOUT": "split", "ALLOW_TIGHT": "1"}
    left = {}
    for tp, pin, batch in ((2, 8, 8192), (2, 8, 16384), (3, 12, 16384), (3, 26, 16384), (4, 26, 16384), (4, 28, 16384)):
        environ = {"TP": str(tp), "KV_CACHE_MEMORY": f"{pin}GiB", "MAX_NUM_BATCHED_TOKENS": str(batch), **original}
        left[tp, pin, batch] = planned(environ, ALL).budgets[0].left
    assert {case for case, bytes_left in left.items() if bytes_left < 0} == {
        (2, 8, 16384), (3, 26, 16384), (4, 28, 16384),
    }  # fmt: skip
    assert 1.5 * GIB < left[4, 26, 16384] < 3 * GIB  # as reported


def test_a_smaller_box_decides_for_all() -> None:
    small = [*BOX, BoxMemory("small", 112 * GIB)]
    sizing = planned({}, ALL, small)
    assert value(sizing, "KV_CACHE_MEMORY") < 26 * GIB  # type: ignore[operator]
    assert any(row.name == "lowered to fit" for row in sizing.rows)
    assert any("small" in row.seen for row in sizing.rows if row.name == "boxes")


def test_memory_that_others_hold_is_told() -> None:
    busy = [replace(BOX[0], available_bytes=90 * GIB)]
    assert any(row.name == "free memory" and row.level == "WARN" for row in planned({}, ALL, busy).rows)


@pytest.mark.parametrize(
    ("environ", "overlays", "setting"),
    [
        ({"GPU_MEM_UTIL": "0.9"}, (), "GPU_MEM_UTIL"),
        ({"KV_CACHE_DTYPE": "fp8"}, (), "KV_CACHE_DTYPE"),
        ({"SPEC_TOKENS": "5"}, (), "SPEC_TOKENS"),
        ({"MOE_BACKEND": "marlin"}, ("megamoe",), "MOE_BACKEND"),
    ],
)
def test_known_traps_are_refused_and_loud_when_allowed(
    environ: dict[str, str], overlays: tuple[str, ...], setting: str
) -> None:
    assert refusal(environ, overlays).setting == setting
    rows = planned({**environ, "ALLOW_TIGHT": "1"}, overlays).rows
    assert any(row.name == setting and row.level == "WARN" for row in rows)


@pytest.mark.parametrize(
    ("environ", "setting"),
    [
        ({"MAX_NUM_BATCHED_TOKENS": "1024"}, "MAX_NUM_BATCHED_TOKENS"),
        ({"MAX_NUM_SEQS": "4096"}, "MAX_NUM_SEQS"),
        ({"MAX_MODEL_LEN": "2000000"}, "MAX_MODEL_LEN"),
        ({"LONG_PREFILL_TOKEN_THRESHOLD": "20000"}, "LONG_PREFILL_TOKEN_THRESHOLD"),
        ({"DECODE_RESERVE_TOKENS": "-1"}, "DECODE_RESERVE_TOKENS"),
        ({"KV_CACHE_MEMORY": "100MiB"}, "KV_CACHE_MEMORY"),
    ],
)
def test_what_the_engine_would_refuse_after_loading_is_refused_before(environ: dict[str, str], setting: str) -> None:
    assert refusal(environ).setting == setting


@settings(deadline=None)
@given(st.sampled_from(["2", "3", "4", "6"]), st.sampled_from([(), ALL]), st.integers(60, 160), st.integers(0, 40))
def test_more_memory_never_gives_less(tp: str, overlays: tuple[str, ...], gib: int, more: int) -> None:
    smaller = attempt({"TP": tp}, overlays, [BoxMemory("box", gib * GIB)])
    larger = attempt({"TP": tp}, overlays, [BoxMemory("box", (gib + more) * GIB)])
    if isinstance(smaller, Sizing):
        assert isinstance(larger, Sizing)
        for name in ("KV_CACHE_MEMORY", "MAX_MODEL_LEN", "MAX_NUM_SEQS", "MAX_NUM_BATCHED_TOKENS"):
            assert value(larger, name) >= value(smaller, name)  # type: ignore[operator]


OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "KV_CACHE_MEMORY": st.integers(1, 160).map(lambda n: str(n * 512 * MIB)),
        "MAX_MODEL_LEN": st.integers(8, 1024).map(lambda n: str(n * 1024)),
        "MAX_NUM_SEQS": st.integers(1, 400).map(str),
        "MAX_NUM_BATCHED_TOKENS": st.integers(16, 128).map(lambda n: str(n * 256)),
        "SPEC_METHOD": st.sampled_from(["dflash", "mtp", "none"]),
        "PROFILE": st.sampled_from(["latency", "throughput"]),
        "KV_LAYOUT": st.sampled_from(["packed", "split"]),
        "KV_CACHE_DTYPE": st.sampled_from(["fp8_e4m3", "auto"]),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["2", "3", "4", "6"]), st.sampled_from([(), ALL]), OVERRIDES)
def test_the_table_sums_and_a_suggestion_is_itself_accepted(
    tp: str, overlays: tuple[str, ...], environ: dict[str, str]
) -> None:
    environ = {"TP": tp, **environ}
    for _ in range(6):  # each round cures one refusal
        found = attempt(environ, overlays)
        if isinstance(found, Sizing):
            for budget in found.budgets:
                assert sum(item.size for item in budget.items) + budget.left == budget.total
                assert all(item.size >= 0 for item in budget.items)
                assert budget.left >= 0
            return
        told = found[0]
        name, _, text = told.cure.removeprefix("Set ").partition("=")
        if not told.cure.startswith("Set "):
            assert "unset" in told.cure
            for knob in told.setting.split(" with "):
                environ.pop(knob)
            continue
        suggested = text.split(",")[0].split(" ")[0].rstrip(".")
        assert suggested != environ.get(name), "the suggestion is what was refused"
        environ[name] = suggested
    pytest.fail(f"no plan after following six cures: {told}")


def test_ten_thousand_random_knob_sets_give_a_plan_or_a_named_refusal() -> None:
    chance = random.Random(4)
    words = [
        "0",
        "1",
        "4",
        "-1",
        "7",
        "2304",
        "9999999999",
        "26GiB",
        "x",
        "0.9",
        "1.5",
        "{",
        "{}",
        "fp8",
        "RING4",
        "a b",
    ]
    mine = [name for name in registry() if name in planned({}).values or name in ("TP", "PROFILE", "ALLOW_TIGHT")]
    names = [*mine, "SPEC_METHOD", "SPEC_TOKENS", "MTP", "KV_CACHE_DTYPE", "MOE_BACKEND", "DECODE_RESERVE_TOKENS"]
    outcomes = {"plan": 0, "refusal": 0}
    for _ in range(10_000):
        environ = {}
        for name in chance.sample(names, chance.randint(0, 4)):
            knob = registry()[name]
            good = [*knob.choices] or (["1", "8", "4096", "16384"] if knob.kind in ("count", "integer") else words)
            environ[name] = chance.choice(good if chance.random() < 0.8 else words)
        found = attempt(environ, chance.choice([(), ALL]))
        if isinstance(found, Sizing):
            assert found.values["KV_CACHE_MEMORY"].value > 0
            outcomes["plan"] += 1
        else:
            assert all(told.setting and told.cure for told in found)
            outcomes["refusal"] += 1
    assert min(outcomes.values()) > 500, outcomes


def test_the_engines_own_line_is_compared() -> None:
    pool = planned({}, ALL).pool
    assert pool is not None
    line = f"INFO GPU KV cache size: {pool.tokens:,} tokens, Maximum concurrency for 524,288 tokens per request: 7.8x"
    row = compare_pool(pool, line)
    assert row is not None
    assert row.level == "ok"
    off = compare_pool(pool, "GPU KV cache size: 1,000,000 tokens")
    assert off is not None
    assert off.level == "WARN"
    assert compare_pool(pool, "Starting vLLM server") is None


def test_every_sizing_knob_has_a_known_kind() -> None:
    assert all(knob.kind in KINDS for knob in registry().values())


def test_the_engines_line_takes_the_predictions_place_on_the_page() -> None:
    sizing = planned({}, ALL)
    assert sizing.pool is not None
    line = f"GPU KV cache size: {sizing.pool.tokens:,} tokens, Maximum concurrency for 524,288 tokens: 7.8x"
    rows = with_engine_line(sizing.rows, sizing.pool, line)
    assert rows is not None
    assert [row.level for row in rows if row.name == "KV pool"] == ["ok"]
    assert len(rows) == len(sizing.rows)
    assert with_engine_line(sizing.rows, sizing.pool, "another line") is None
    assert with_engine_line(sizing.rows, None, line) is None
