"""Measured against known truth: what the client reports equals what the server recorded of its own sends.

In every scenario the medians of 20 or more answers agree: rates within 1 %, times to first token and gaps within 5 ms.
Where they do not although everything else is right, and this test's own client woke up late meanwhile, the machine was
busy with something else and the scenario is measured again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from client.metrics import drafting
from client.openai import Client
from client.reply import Reply
from gate.lag import Lag
from gate.session import OFF
from gate.stats import median
from tests.gate.harness import record, simulator_async

ANSWERS = 20
AT_ONCE = 3  # scenarios side by side
LATE_S = 0.004
TRIES = 5


@dataclass(frozen=True)
class Scenario:
    """How the server behaves and how it is asked: `streams` at once, `tokens` each, in `api` chat or completions."""

    how: dict[str, Any]
    tokens: int = 32
    streams: int = 1
    api: str = "chat"
    options: dict[str, Any] = field(default_factory=dict)
    same_prompt: bool = False


DRAFTS = [0.8, 0.6, 0.45, 0.3, 0.2, 0.15, 0.1]
SCENARIOS: dict[str, Scenario] = {
    "steady": Scenario({"gap_s": 0.008}),
    "fast": Scenario({"gap_s": 0.002}, tokens=120),
    "slow": Scenario({"gap_s": 0.02}, tokens=16),
    "very slow": Scenario({"gap_s": 0.06}, tokens=7),
    "first token at once": Scenario({"gap_s": 0.008, "ttft_s": 0.0}),
    "first token after 50 ms": Scenario({"gap_s": 0.008, "ttft_s": 0.05}),
    "first token after 200 ms": Scenario({"gap_s": 0.008, "ttft_s": 0.2}),
    "two tokens an event": Scenario({"gap_s": 0.01, "burst": 2}),
    "four tokens an event": Scenario({"gap_s": 0.02, "burst": 4}),
    "sixteen tokens an event": Scenario({"gap_s": 0.05, "burst": 16}, tokens=96),
    "three with a ragged end": Scenario({"gap_s": 0.012, "burst": 3}, tokens=50),
    "one drafted token": Scenario({"gap_s": 0.01, "accept": [0.7]}),
    "four drafted tokens": Scenario({"gap_s": 0.012, "accept": DRAFTS[:4]}, tokens=64),
    "seven drafted tokens": Scenario({"gap_s": 0.015, "accept": DRAFTS}, tokens=64),
    "drafts never right": Scenario({"gap_s": 0.006, "accept": [0.0] * 7}),
    "drafts always right": Scenario({"gap_s": 0.03, "accept": [1.0] * 7}, tokens=96),
    "jitter of 30 %": Scenario({"gap_s": 0.006, "gap_jitter": 0.3}),
    "jitter of 90 %": Scenario({"gap_s": 0.006, "gap_jitter": 0.9}),
    "jittered drafts": Scenario({"gap_s": 0.012, "gap_jitter": 0.5, "accept": DRAFTS}, tokens=64),
    "a stall in the middle": Scenario({"gap_s": 0.008, "stall_after": 20, "stall_s": 0.15}),
    "a stall at once": Scenario({"gap_s": 0.008, "stall_after": 1, "stall_s": 0.1}),
    "reading takes time": Scenario({"gap_s": 0.008, "prefill_rate": 400}),
    "nothing cached": Scenario({"gap_s": 0.008, "prefill_rate": 400, "page": 0}, same_prompt=True),
    "prompt cached": Scenario({"gap_s": 0.008, "prefill_rate": 400, "page": 8}, same_prompt=True),
    "two streams": Scenario({"gap_s": 0.008}, streams=2),
    "four streams": Scenario({"gap_s": 0.012}, streams=4),
    "eight streams": Scenario({"gap_s": 0.02}, streams=8, tokens=24),
    "four streams that slow each other": Scenario({"gap_s": 0.006, "slow_down": 0.3}, streams=4),
    "four streams, drafted": Scenario({"gap_s": 0.02, "accept": DRAFTS}, streams=4, tokens=64),
    "queue at the server": Scenario({"gap_s": 0.008, "slots": 2}, streams=4, tokens=24),
    "no running count, one token an event": Scenario({"gap_s": 0.008, "continuous_usage": False}),
    "completions": Scenario({"gap_s": 0.008}, api="completions"),
    "thinking": Scenario({"gap_s": 0.008}, options={"chat_template_kwargs": {}}),
    "log probabilities asked": Scenario({"gap_s": 0.008}, options={"logprobs": True}),
    "drift from answer to answer": Scenario({"gap_s": 0.008, "drift": 0.02}),
}


@dataclass
class Truth:
    """Medians as the client measured them and as the server recorded them."""

    rate: tuple[float, float]
    ttft: tuple[float, float]
    gap: tuple[float, float]
    tokens: tuple[int, int]
    cached: tuple[int, int]
    steps: tuple[float, float]
    tokens_per_step: tuple[float | None, float]
    answers: int
    late_s: float

    def times_agree(self) -> bool:
        """Rates within 1 %, times to first token and gaps within 5 ms."""
        near = all(abs(mine - theirs) <= 0.005 for mine, theirs in (self.ttft, self.gap))
        return near and abs(self.rate[0] / self.rate[1] - 1) <= 0.01


async def ask(client: Client, scenario: Scenario, number: int) -> Reply:
    words = "the same" if scenario.same_prompt else f"number {number}"
    prompt = f"[{words}] Tell me about the harbour, the boats, the tide and the people who live with all of them."
    if scenario.api == "completions":
        return await client.complete(prompt, max_tokens=scenario.tokens)
    chat = [{"role": "user", "content": prompt}]
    return await client.chat(chat, max_tokens=scenario.tokens, **{**OFF, **scenario.options})


async def measure(scenario: Scenario) -> Truth:
    lag = Lag()
    replies: list[Reply] = []
    async with simulator_async(**scenario.how) as base, Client(base, "glm53") as client, lag.watching():
        before = await client.metrics()
        with lag.window() as late:
            while len(replies) < ANSWERS:
                asked = len(replies)
                replies += await asyncio.gather(*(ask(client, scenario, asked + n) for n in range(scenario.streams)))
        change = drafting(before, await client.metrics())
        rows = await asyncio.to_thread(record, base)
    assert len(rows) == len(replies)
    mine, theirs = replies, rows

    def rate(row: dict[str, Any]) -> float:
        return float((sum(row["counts"]) - row["counts"][0]) / (row["sends"][-1] - row["sends"][0]))

    def middle(values: list[float]) -> float:
        return median(values)

    steps = sum(row["steps"] for row in rows)
    accepted = sum(row["accepted"] for row in rows)
    return Truth(
        rate=(middle([reply.rate() or 0.0 for reply in mine]), middle([rate(row) for row in theirs])),
        ttft=(
            middle([reply.timing.ttft_s or 0.0 for reply in mine]),
            middle([r["sends"][0] - r["received"] for r in theirs]),
        ),
        gap=(
            middle([gap for reply in mine for gap in reply.gaps()]),
            middle([later - earlier for row in theirs for earlier, later in pairwise(row["sends"])]),
        ),
        tokens=(
            sum(reply.usage.completion for reply in replies if reply.usage),
            sum(sum(row["counts"]) for row in rows),
        ),
        cached=(sum(reply.usage.cached or 0 for reply in replies if reply.usage), sum(row["cached"] for row in rows)),
        steps=(change.steps, steps),
        tokens_per_step=(change.tokens_per_step, 1 + accepted / steps if steps else 0.0),
        answers=len(replies),
        late_s=late.worst_s,
    )


# CI has two minutes for the gate: every fifth scenario there, all of them with --full.
SHORT = tuple(SCENARIOS)[::5]


@pytest.fixture(scope="module")
def truths(request: pytest.FixtureRequest) -> dict[str, Truth]:
    wanted = SHORT if request.config.getoption("-m") == "not full" else tuple(SCENARIOS)

    async def every() -> dict[str, Truth]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def slot(scenario: Scenario) -> Truth:
            async with slots:
                for _ in range(TRIES):
                    truth = await measure(scenario)
                    if truth.times_agree() or truth.late_s < LATE_S:
                        break
                return truth

        found = await asyncio.gather(*(slot(SCENARIOS[name]) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    return asyncio.run(every())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.full) for name in SCENARIOS]
)
def test_the_client_reports_what_the_server_did(truths: dict[str, Truth], name: str) -> None:
    truth = truths[name]
    assert truth.answers >= ANSWERS
    assert truth.tokens[0] == truth.tokens[1]
    assert truth.cached[0] == truth.cached[1]
    assert truth.steps[0] == truth.steps[1]
    if truth.steps[1]:
        assert truth.tokens_per_step[0] == pytest.approx(truth.tokens_per_step[1])
    assert truth.times_agree(), truth


def test_there_are_at_least_thirty_scenarios() -> None:
    assert len(SCENARIOS) >= 30
