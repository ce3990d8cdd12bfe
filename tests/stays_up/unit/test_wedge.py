"""The rules that end what nobody reported broken, and those that do not end what only looks so."""

from __future__ import annotations

from pathlib import Path

from entrypoint.watch.counters import Counters, activity, parse
from entrypoint.watch.phases import phase
from entrypoint.watch.wedge import Due, Known, Limits, Seen, Still, look, stood

LIMITS = Limits(wedge_s=60, idle_s=30)


def watch(*looks: Seen) -> tuple[list[Due], str]:
    """(what was due at each look, why it is wedged or "")."""
    known, due = Known(0, 0), list[Due]()
    for seen in looks:
        known, asked, wedged = look(known, seen, LIMITS)
        due.append(asked)
        if wedged:
            return due, wedged
    return due, ""


def frozen(seconds: int, every: int = 1, **fields: object) -> list[Seen]:
    counters = Counters(running=2, generated=100, prompted=50, kv=0.1, steps=40)
    return [Seen(now, counters, **fields) for now in range(0, seconds, every)]  # type: ignore[arg-type]


def test_running_requests_without_a_token_are_a_wedge_after_wedge_s() -> None:
    assert watch(*frozen(60))[1] == ""
    assert "2 requests in the engine, and for 60s no token" in watch(*frozen(62))[1]


def test_a_token_a_step_or_kv_growth_is_life() -> None:
    for field in ("generated", "prompted", "kv", "steps"):
        looks = [Seen(now, Counters(running=1, **{field: now // 50})) for now in range(600)]
        assert watch(*looks)[1] == "", field


def test_a_compiler_on_any_box_is_life() -> None:
    assert watch(*frozen(600, compiling="ptxas"))[1] == ""


def test_metrics_that_do_not_answer_prove_nothing_while_nothing_runs() -> None:
    assert watch(*[Seen(now, None, asked_at=None) for now in range(25)])[1] == ""


def test_metrics_that_fall_silent_under_load_ask_for_a_token_before_anything_ends() -> None:
    first = Seen(0, Counters(running=1))
    due, wedged = watch(first, *[Seen(now, None) for now in range(1, 300)])
    assert wedged == ""
    assert due.index("canary") == 30
    asked = [Seen(now, None, asked_at=30 if now >= 30 else None) for now in range(1, 300)]
    assert "wedged" in watch(first, *asked)[1]


def test_a_probe_missed_now_and_then_hides_no_wedge() -> None:
    looks = [Seen(now, None if now % 3 == 0 else Counters(running=1, generated=9)) for now in range(200)]
    assert "wedged" in watch(*looks)[1]


def test_one_look_after_a_long_gap_ends_nothing() -> None:
    assert watch(*frozen(10), Seen(500, frozen(1)[0].counters))[1] == ""  # the kit itself stood still


def test_an_idle_engine_is_asked_for_a_token_and_a_token_is_life() -> None:
    idle = Counters(generated=5)
    due, wedged = watch(*[Seen(now, idle) for now in range(40)])
    assert due.index("canary") == 30
    assert wedged == ""
    answered = [Seen(now, idle, answered=now % 20 == 0) for now in range(300)]
    assert "canary" not in watch(*answered)[0]


def test_a_canary_that_brings_nothing_is_a_wedge_too() -> None:
    idle = Counters(generated=5)
    looks = [Seen(now, idle, asked_at=30 if now >= 30 else None) for now in range(120)]
    assert "a one-token question in the engine" in watch(*looks)[1]


def test_counters_are_read_from_vllms_text() -> None:
    text = (
        '# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine="0",model_name="a"} 3.0\n'
        'vllm:generation_tokens_total{engine="0"} 1.5e+03\nvllm:generation_tokens_total{engine="1"} 1.0\n'
        'vllm:iteration_tokens_total_count{engine="0"} 7\nvllm:prompt_tokens_total{engine="0"} nonsense\nvllm:kv_cache'
    )
    assert parse(text) == Counters(running=3, generated=1501, steps=7)


def test_standing_still_needs_several_looks() -> None:
    known, seconds = stood(Still(0), "a", 1)
    assert seconds == 0
    known, seconds = stood(known, "a", 500)
    assert seconds == 0
    known, seconds = stood(stood(known, "a", 501)[0], "a", 502)
    assert seconds == 501
    assert stood(known, "b", 503)[1] == 0


def test_a_stalled_boot_says_where_it_stood() -> None:
    assert phase(["INFO Loading safetensors checkpoint shards: 50%"]).name == "loading weights"
    assert phase(["Loading safetensors", "Capturing CUDA graphs 3/9"]).name == "capturing graphs"
    assert phase([]).name == "meeting the other ranks"


def test_a_rank_that_takes_orders_with_recv_shows_by_what_it_writes(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text("7 (python3) S " + " ".join(["0"] * 40))
    (folder / "statm").write_text("10 5 0 0 0 0 0")
    orders = []
    for written in (100, 196):  # gloo: the bytes read stay as they are
        (folder / "io").write_text(f"rchar: 5000\nwchar: {written}\nsyscr: 1\n")
        orders.append(activity([7], tmp_path).orders)
    assert orders[1] > orders[0]
