"""The prefix cache, past two of its pages: the same long prompt cold, then warm."""

from __future__ import annotations

import random
from typing import Any

from gate.check import Check, Outcome
from gate.right.needle import line
from gate.session import GREEDY, OFF, Scope

LEAST_SHARE = 0.4  # of the prompt that the second request must find (pages of 2.3k to 3.6k tokens were reported)


async def run(scope: Scope) -> Outcome:
    """Ask twice and look at what the server says it reused; its counters decide where usage is silent."""
    limit = scope.session.limit
    target = min(scope["tokens"], int(limit * 0.7)) if limit else scope["tokens"]
    rows = []
    for number in range(scope["rounds"]):
        rows.append(await scope.once(str(number), lambda number=number: _pair(scope, number, target)))  # type: ignore[misc]
        scope.note(f"cold {rows[-1]['cold_s']:.2f} s, warm {rows[-1]['warm_s']:.2f} s, reused {rows[-1]['reused']}")
    if any(row["reused"] is None for row in rows):
        return Outcome("inconclusive", "neither usage nor /metrics tells what was reused", {"rounds": rows})
    worst = min(rows, key=lambda row: row["reused"] / row["prompt"])
    figures = {"prompt": worst["prompt"], "reused": worst["reused"], "rounds": rows}
    share = worst["reused"] / worst["prompt"]
    if any(row["cold_reused"] for row in rows):
        return Outcome(
            "inconclusive", "the first request was not cold: the tags of this series were used before", figures
        )
    if share < LEAST_SHARE:
        return Outcome("fail", f"{worst['reused']} of {worst['prompt']} tokens reused on the second request", figures)
    speed = sum(row["cold_s"] for row in rows) / max(1e-9, sum(row["warm_s"] for row in rows))
    return Outcome(
        "pass", f"{share:.0%} of {worst['prompt']} tokens reused, first token {speed:.1f} times as soon", figures
    )


async def _pair(scope: Scope, number: int, target: int) -> dict[str, Any]:
    client = scope.client
    draw = random.Random(scope.tag(number))
    sample = "\n".join(line(place, draw) for place in range(100))
    per_line = (await client.tokenize(sample))["count"] / 100
    body = "\n".join(line(place, draw) for place in range(max(2, int(target / per_line))))
    chat = [{"role": "user", "content": f"log {scope.tag(number)}\n{body}\n\nSay ok."}]
    before = await _hits(scope)
    cold = await client.chat(chat, max_tokens=4, **GREEDY, **OFF)
    between = await _hits(scope)
    warm = await client.chat(chat, max_tokens=4, **GREEDY, **OFF)
    after = await _hits(scope)
    assert cold.usage is not None
    assert warm.usage is not None
    first, second = cold.usage.cached, warm.usage.cached
    if second is None and before is not None and between is not None and after is not None:
        first, second = int(between - before), int(after - between)
    return {
        "prompt": warm.usage.prompt,
        "cold_reused": first or 0,
        "reused": second,
        "cold_s": cold.timing.ttft_s or cold.timing.total_s,
        "warm_s": warm.timing.ttft_s or warm.timing.total_s,
    }


async def _hits(scope: Scope) -> float | None:
    found = await scope.client.metrics()
    name = "vllm:prefix_cache_hits_total"
    return found.sum(name) if found.has(name) else None


CHECK = Check(
    name="prefix",
    room="right",
    title="Prefix cache past two pages",
    bar=f"the same long prompt asked again reuses at least {LEAST_SHARE:.0%} of its tokens",
    why="Reported: caches that never hit, even on identical prompts, because of how drafts and page tails are kept.",
    run=run,
    quick={"tokens": 9000, "rounds": 1},
    full={"tokens": 16000, "rounds": 3},
)
