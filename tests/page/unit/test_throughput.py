"""From vLLM's counters to samples: rates, percentiles, a prompt not counted yet, a drafter that is broken."""

from __future__ import annotations

import json

import pytest

from client.metrics import parse
from entrypoint.status.history import KEPT, History
from entrypoint.status.shape import schema, take
from entrypoint.status.throughput import drafter_trouble, quantile, sample, totals

TTFT = "vllm:time_to_first_token_seconds"


def text(
    generated: int = 0, prompted: int = 0, kv: float = 0.0, running: int = 0, steps: int = 0, more: str = ""
) -> str:
    return (
        f'vllm:generation_tokens_total{{engine="0"}} {generated}\nvllm:prompt_tokens_total{{engine="0"}} {prompted}\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} {kv}\nvllm:num_requests_running{{engine="0"}} {running}\n'
        f"vllm:num_requests_waiting 2\nvllm:spec_decode_num_drafts_total {steps}\n{more}"
    )


def drafts(steps: int, accepted: int) -> str:
    positions = "".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} {accepted / 7}\n' for at in range(7)
    )
    return text(
        steps=steps,
        more=f"vllm:spec_decode_num_draft_tokens_total {7 * steps}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {accepted}\n{positions}",
    )


def buckets(*counts: tuple[str, int]) -> str:
    return "".join(f'{TTFT}_bucket{{engine="0",le="{bound}"}} {count}\n' for bound, count in counts)


def test_rates_are_differences_over_time() -> None:
    more = (
        "vllm:prompt_tokens_cached_total 400\nvllm:prefix_cache_queries_total 1000\nvllm:prefix_cache_hits_total 400\n"
    )
    found = sample(parse(text(100, 0)), parse(text(1100, 1000, 0.25, 3, more=more)), 10.0, 7.0)
    assert (found.decode, found.prefill, found.running, found.waiting) == (100.0, 60.0, 3, 2)
    assert (found.kv, found.hits, found.at) == (0.25, 0.4, 7.0)
    assert found.per_step is None
    assert not found.prefilling


def test_a_new_engine_counts_from_zero_and_is_no_negative_rate() -> None:
    found = sample(parse(text(5000, 900)), parse(text(10, 5)), 10.0, 0.0)
    assert (found.decode, found.prefill) == (0.0, 0.0)


def test_counters_that_stand_while_kv_grows_are_a_prefill() -> None:
    assert sample(parse(text(10, 5, 0.1, 1)), parse(text(10, 5, 0.3, 1)), 10.0, 0.0).prefilling
    assert not sample(parse(text(10, 5, 0.1, 1)), parse(text(10, 5, 0.1, 1)), 10.0, 0.0).prefilling
    assert not sample(parse(text(10, 5, 0.1, 0)), parse(text(10, 5, 0.3, 0)), 10.0, 0.0).prefilling


def test_a_compiler_counts_only_beneath_requests() -> None:
    assert sample(parse(text()), parse(text(running=1)), 10.0, 0.0, compiling=True).compiling
    assert not sample(parse(text()), parse(text(running=0)), 10.0, 0.0, compiling=True).compiling


def test_percentiles_come_from_what_was_observed_in_between() -> None:
    before = parse(buckets(("0.1", 10), ("1.0", 10), ("+Inf", 10)))
    after = parse(buckets(("0.1", 10), ("1.0", 110), ("+Inf", 110)))
    assert quantile(before, after, TTFT, 0.5) == pytest.approx(0.55)
    assert quantile(before, before, TTFT, 0.5) is None
    assert quantile(parse(""), parse(""), TTFT, 0.5) is None


def test_what_lies_beyond_the_last_bound_is_that_bound_and_json_stays_json() -> None:
    found = quantile(parse(""), parse(buckets(("0.1", 0), ("1.0", 0), ("+Inf", 4))), TTFT, 0.95)
    assert found == 1.0
    history = History()
    for at in range(3):
        history.take(parse(text(at) + buckets(("1.0", 0), ("+Inf", at))), float(at), compiling=False)
    json.dumps(history.as_dict(10.0), allow_nan=False)


def test_a_counter_that_is_no_number_does_not_break_the_page() -> None:
    history = History()
    for at, told in enumerate(("0", "NaN", "+Inf", "5")):
        history.take(parse(f"vllm:generation_tokens_total {told}\nvllm:kv_cache_usage_perc {told}\n"), float(at), False)
    json.dumps(history.as_dict(10.0), allow_nan=False)


def test_several_engines_are_added_up() -> None:
    one, two = 'vllm:generation_tokens_total{engine="0"} ', 'vllm:generation_tokens_total{engine="1"} '
    found = sample(parse(f"{one}0\n{two}0\n"), parse(f"{one}10\n{two}30\n"), 10.0, 0.0)
    assert found.decode == 4.0


def test_a_drafter_of_which_nothing_is_accepted_is_named() -> None:
    start = parse(drafts(0, 0))
    assert drafter_trouble(start, parse(drafts(1000, 20))).startswith("the drafter yields 1.0 of 8 tokens a step")
    assert drafter_trouble(start, parse(drafts(1000, 1400))) == ""
    assert drafter_trouble(start, parse(drafts(50, 0))) == ""
    assert drafter_trouble(parse(text()), parse(text())) == ""


def test_the_counters_that_are_shown_as_they_are() -> None:
    more = (
        'vllm:request_success_total{finished_reason="stop"} 7\nvllm:request_success_total{finished_reason="length"} 2\n'
        'vllm:num_preemptions_total 3\nvllm:num_requests_waiting_by_reason{reason="capacity"} 2\n'
    )
    found = totals(parse(text(more=more)))
    assert (found.finished, found.preempted, found.waiting) == ({"stop": 7, "length": 2}, 3, {"capacity": 2})


def test_the_ring_has_a_fixed_size_and_a_restart_makes_no_sample() -> None:
    history = History()
    for at in range(KEPT + 20):
        history.take(parse(text(at * 100)), float(at), compiling=False)
    assert len(history.samples) == KEPT
    before = len(history.samples)
    history.forget_engine()
    history.take(parse(text(5)), 1000.0, compiling=False)
    assert len(history.samples) == before
    shown = history.as_dict(1000.0)
    assert {len(column) for name, column in shown.items() if name != "every_s"} == {KEPT}


def test_what_the_head_publishes_is_what_the_schema_says() -> None:
    history = History()
    history.take(parse(drafts(0, 0)), 0.0, compiling=False)
    history.take(parse(drafts(10, 10)), 10.0, compiling=False)
    totals_now = {"finished": {}, "preempted": 0, "waiting_why": {}}
    wanted = schema("status")["properties"]["throughput"]
    assert take(wanted, {**history.as_dict(20.0), **totals_now}, "$")["per_step"] == [2.0]
