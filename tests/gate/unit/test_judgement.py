"""The pure parts of the checks: what counts as wrong, given what a server said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from client.reply import Event, Reply, Timing, Usage
from core.refusal import Refusal
from gate import conditions
from gate.check import judged
from gate.lag import Window
from gate.right import agent, count, datasets, determinism, longreply, nll, reasoning, sandbox, scripts, tools
from gate.speed import files, measure, prompts, soak
from gate.table import CHECKS, chosen
from gate.tokens import LEAST, Pool


def reply(counts: list[int], gap: float, text: str = "words") -> Reply:
    """A streamed answer whose events carry `counts` tokens, one every `gap` seconds."""
    made = Reply(Timing(submitted=0.0, sent=0.0, first=1.0), text=text, complete=True)
    done = 0
    for place, size in enumerate(counts):
        done += size
        made.events.append(Event(1.0 + place * gap, done, "content", 4))
    made.timing.last = made.timing.sent + made.events[-1].at
    made.usage = Usage(10, done)
    return made


# -- speed ---------------------------------------------------------------------------------------------------------


def test_a_rate_is_tokens_after_the_first_event_over_the_time_from_it() -> None:
    assert reply([5, 4, 4, 4], 0.1).rate() == pytest.approx(40)
    assert reply([5], 0.1).rate() is None


def test_a_batch_counts_from_the_earliest_first_token() -> None:
    tokens, seconds = measure.together_rate([reply([1] * 11, 0.1), reply([1] * 21, 0.05)])
    assert tokens == 31
    assert seconds == pytest.approx(1.0)


def test_runs_are_marked_with_what_is_wrong_with_them() -> None:
    good = reply([1] * 20, 0.1)
    assert measure.problem("code", [good], 20) == ""
    assert "suspect" in measure.problem("code", [reply([1], 0.1, "bro\ufffdken")], None)
    assert "empty" in measure.problem("code", [reply([1], 0.1, "")], None)
    assert "someone else" in measure.problem("code", [good], 80)
    assert "counter" in measure.problem("code", [reply([100], 0.1)], 20)
    assert "line 2" in measure.problem("counting", [reply([3], 0.1, "1\n3\n")], None)


def test_prompts_of_a_class_do_not_repeat() -> None:
    for work in prompts.CLASSES:
        first = [prompts.prompt(work, index) for index in range(64)]
        assert len(set(first)) == 64


def test_a_soak_complains_only_about_what_is_beyond_chance_and_size() -> None:
    assert soak.judge([10.0, 10.1] * 20, "the rate", False) is None
    assert soak.judge([10 - 0.05 * n for n in range(30)], "the rate", False) is not None
    assert soak.judge([10 + 0.05 * n for n in range(30)], "the rate", False) is None
    # a wait of 5 ms that grows by 1 ms is the client's timers; one that grows by 15 ms is not
    assert soak.judge([0.005 + 0.00003 * n for n in range(30)], "the wait", True, soak.LEAST_WAIT_S) is None
    assert soak.judge([0.005 + 0.0005 * n for n in range(30)], "the wait", True, soak.LEAST_WAIT_S) is not None


def test_exact_prompts_share_no_prefix() -> None:
    pool = Pool(list(range(100, 400)))
    made = [pool.prompt(500, f"tag {number}") for number in range(300)]
    assert all(len(prompt) == 500 for prompt in made)
    assert len({tuple(prompt[:LEAST]) for prompt in made}) == len(made)
    assert pool.prompt(500, "tag 1") == made[1]


def test_a_client_is_late_by_share_of_what_it_measures() -> None:
    assert Window(0.009).complaint(0.01) == ""
    assert Window(0.2).complaint(5.0) == ""
    assert "late" in Window(0.3).complaint(5.0)


def test_cold_is_what_compiles_writes_a_snapshot_or_runs_on_locked_clocks() -> None:
    quiet = ["INFO Avg generation throughput: 120 tokens/s"]
    assert conditions.judge(quiet, quiet, "Not Active") == []
    assert conditions.judge(["torch.compile takes 31.2 s in total"], [], "")
    assert conditions.judge([], ["weight snapshot written to /cache/x in 80 s"], "")
    assert conditions.judge([], [], "Active")
    assert conditions.judge([], [], "", ["first boot"]) == ["first boot"]


def test_only_lines_written_meanwhile_count_as_compiling(tmp_path: Path) -> None:
    import asyncio

    log = tmp_path / "vllm.log"
    log.write_text("INFO torch.compile takes 30 s\n")

    async def watch(more: str) -> list[str]:
        made = conditions.Watch(log, None)
        await made.begin()
        with log.open("a") as file:
            file.write(more)
        found: list[str] = (await made.end())["cold"]
        return found

    assert asyncio.run(watch("INFO all quiet\n")) == []
    assert asyncio.run(watch("INFO Autotuning kernel moe\n"))


def test_llama_benchy_is_read_and_never_compared(tmp_path: Path) -> None:
    file = tmp_path / "benchy.json"
    run = {
        "concurrency": 1,
        "context_size": 0,
        "prompt_size": 2048,
        "response_size": 32,
        "pp_throughput": {"mean": 4900.0, "std": 1.0, "values": [4900.0]},
        "tg_throughput": {"mean": 60.0, "std": 1.0, "values": [60.0]},
        "e2e_ttft": {"mean": 420.0, "std": 1.0, "values": [420.0]},
    }
    file.write_text(json.dumps({"version": "0.4.0", "model": "glm53", "benchmarks": [run]}))
    row = files.benchy(file)[0]
    assert (row["prefill_rate"], row["decode_rate"], row["ttft_s"], row["counts"]) == (4900.0, 60.0, 0.42, "events")
    with pytest.raises(Refusal, match="llama-benchy"):
        files.read(file)


# -- right ---------------------------------------------------------------------------------------------------------


def test_a_count_is_wrong_at_its_first_wrong_line() -> None:
    right = "\n".join(map(str, range(1, 201)))
    assert count.first_bad(right) is None
    assert "line 2" in (count.first_bad("1\n3") or "")
    assert "too many" in (count.first_bad(right + "\n201") or "")
    assert "line 3 reads 'nothing'" in (count.first_bad("1\n2") or "")


def test_scripts_are_scanned_by_character() -> None:
    korean = scripts.LANGUAGES["Korean"]
    text = "바다는 아침마다 다른 색으로 빛나고 배는 조용히 항구를 떠난다."
    assert scripts.wrong(text, korean) is None
    assert "U+FFFD" in (scripts.wrong(text + "\ufffd", korean) or "")
    assert "U+0007" in (scripts.wrong(text + "\a", korean) or "")
    assert "its script" in (scripts.wrong("The sea shines in another colour every morning.", korean) or "")
    assert "third script" in (scripts.wrong(text + "ржавый", korean) or "")
    assert not scripts.suspect("Plain words, naïve café, 12 °C and a π.")
    assert not scripts.suspect("plain words of a test " * 20 + "that prints Hello, 世界")
    assert scripts.suspect("one syllable 쪽 in a long English answer is a corrupted token")


@pytest.mark.parametrize(
    ("arguments", "good"),
    [
        ('{"vessel": {"name": "Sula", "length_m": 11.5}, "stay": {"nights": 3, "extras": ["water", "power"]}}', True),
        (
            '{"vessel": {"name": "sula ", "length_m": 11.5}, "stay": {"nights": 3.0, "extras": ["water", "power"]}}',
            True,
        ),
        ('{"vessel": {"name": "Sula", "length_m": 11.5}, "stay": {"nights": 3, "extras": ["power", "water"]}}', False),
        ('{"vessel": {"name": "Sula", "length_m": 11.5}}', False),
        ('{"vessel": {"name": "Sula", "length_m"', False),
    ],
)
def test_nested_arguments_are_compared_whole(arguments: str, good: bool) -> None:
    case = next(case for case in tools.CASES if case.name == "nested")
    row = {"tool_calls": [{"name": "book_berth", "arguments": arguments}], "text": "", "finish": "tool_calls"}
    assert (tools.wrong(case, row) is None) == good


def test_a_call_left_in_the_text_is_no_call() -> None:
    row: dict[str, Any] = {"tool_calls": [], "text": "<tool_call>ring_bell</tool_call>", "finish": "stop"}
    assert "0 calls" in (tools.wrong(tools.CASES[0], row) or "")


def test_long_replies_fail_by_window_by_growth_or_by_repeating() -> None:
    assert longreply.judge([0.02, 0.02, 0.021, 0.02], 1) is None
    assert "window 3" in (longreply.judge([0.02, 0.02, 0.5, 0.02], 1) or "")
    assert "second half" in (longreply.judge([0.02, 0.02, 0.05, 0.06], 1) or "")
    assert "16 tokens" in (longreply.judge([0.02], 9) or "")
    assert longreply.repeats(list(range(16)) * 12, 2000) == 12
    assert longreply.repeats(list(range(2000)), 2000) == 1
    assert longreply.windows([1.0, -1.0, 3.0, 3.0, 9.0], 2) == [1.0, 3.0, 9.0]


def test_likelihoods_have_a_bar_per_text() -> None:
    old = {name: [-1.0] * 100 for name in nll.BARS}
    figures: dict[str, Any] = {name: {} for name in nll.BARS}
    assert nll.compare({**old, "notes": [-1.02] * 100}, old, figures).verdict == "pass"
    assert nll.compare({**old, "kernel": [-1.02] * 100}, old, figures).verdict == "fail"
    assert nll.compare({**old, "kernel": [-1.0] * 90}, old, figures).verdict == "inconclusive"


def test_reasoning_is_judged_by_its_length() -> None:
    good = {"default": 900.0, "off": 60.0, "off (thinking)": 60.0, "low": 200.0, "high": 900.0, "low (template)": 210.0}
    assert reasoning.judge(good, "").verdict == "pass"
    for change in ({"default": 0.0}, {"off": 700.0}, {"low": 950.0}, {"low (template)": 900.0}):
        assert reasoning.judge({**good, **change}, "").verdict == "fail"


def test_the_desk_counts_what_an_agent_does_wrong() -> None:
    desk = agent.Desk()
    assert "no JSON" in desk.call("read_file", '{"path": ')
    assert "needs path" in desk.call("read_file", "{}")
    assert "no tool" in desk.call("rm", '{"path": "x"}')
    assert "error" in desk.call("read_file", json.dumps({agent.REJECTED: "unknown key"}))
    assert (desk.bad, desk.unknown, desk.refused) == (2, 1, 1)
    assert "7431" in desk.call("read_file", '{"path": "/settings.ini"}')
    assert desk.call("find_text", '{"text": "TODO"}').count("\n") == 2


def test_every_job_can_be_failed_and_done() -> None:
    for job in agent.JOBS:
        assert not job.good(agent.Desk(answer="ok"))
    desk = agent.Desk(answer="ok")
    desk.call("write_file", json.dumps({"path": "docs/owner.txt", "content": "M. Isbister"}))
    assert next(job for job in agent.JOBS if job.name == "create").good(desk)


def test_word_salad_has_a_low_diversity() -> None:
    assert agent.diversity("the the the " * 100) < 0.05
    assert agent.diversity(" ".join(f"w{n}" for n in range(200))) == 1.0
    assert agent.diversity("too short") == 1.0


def test_the_first_difference_is_a_place() -> None:
    assert determinism.first_difference("abc", "abx") == 2
    assert determinism.first_difference("abc", "abcd") == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [("so\n#### 1,234", 1234.0), ("12 and then 13.", 13.0), ("#### -5 apples 7", -5.0), ("none", None)],
)
def test_the_number_after_the_mark_counts(text: str, value: float | None) -> None:
    assert datasets.number_in(text) == value


def test_generated_code_gets_nothing() -> None:
    words = sandbox.argv("python:3.12-slim", "name")
    for needed in ("--read-only", "ALL", "no-new-privileges", "none", "65534:65534", "--pids-limit", "--memory"):
        assert needed in words
    assert not any(word in ("--privileged", "-v", "--volume", "--mount") for word in words)


def test_a_program_is_the_answers_code_with_the_tests_behind_it() -> None:
    row = {"prompt": "def f(x):\n", "test": "def check(f):\n    assert f(1) == 2", "entry_point": "f"}
    made = datasets.program(row, "Sure:\n```python\ndef f(x):\n    return x + 1\n```")
    scope: dict[str, Any] = {}
    exec(made, scope)
    assert datasets.program(row, "    return x + 1").startswith("def f(x):\n    return")


# -- the table -----------------------------------------------------------------------------------------------------


def test_names_rooms_and_sizes_choose_checks() -> None:
    names = [check.name for check in chosen(["quick"])[0]]
    assert "soak" not in names
    assert "soak" in [check.name for check in chosen(["full"])[0]]
    assert {check.room for check in chosen(["fair"])[0]} == {"fair"}
    assert [check.name for check in chosen(["needle", "quick"])[0]] == ["needle"]
    with pytest.raises(Refusal):
        chosen(["neddle"])


def test_every_check_says_its_bar_and_why() -> None:
    for check in CHECKS:
        assert len(check.bar) > 20 or check.bar == "none during the gate"
        assert check.why.endswith(".")
        assert not check.bar.endswith(".")
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_nothing_tried_decides_nothing() -> None:
    assert judged(0, 0, "things").verdict == "inconclusive"
    assert judged(2, 2, "things").verdict == "pass"
    assert judged(1, 2, "things", "the second").reason.endswith("the second")
