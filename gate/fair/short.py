"""Short requests and a running stream while one long prompt is read: the commonest complaint about a shared server."""

from __future__ import annotations

import asyncio
from typing import Any

from gate.check import Check, Outcome, Plot
from gate.fair import load
from gate.session import Scope
from gate.stats import percentile
from gate.tokens import Pool


async def run(scope: Scope) -> Outcome:
    """Baseline, then a stream, the long prompt, and probes beside it."""
    row = await scope.once("round", lambda: load.timed(scope, _round(scope)))
    long_s, bar = row["prefill_s"], load.allowed(row["prefill_s"])
    figures = {
        "prefill_s": long_s,
        "prompt": row["prompt"],
        "allowed_s": bar,
        **load.classes(alone_ttft=row["alone"], beside_ttft=row["beside"], stream_gaps=row["gaps"]),
    }
    plot = Plot(
        "strip",
        "Short requests, time to first token",
        "",
        "seconds",
        {
            "groups": [
                {"name": "alone", "values": row["alone"]},
                {"name": "beside the long prompt", "values": row["beside"]},
            ]
        },
    )
    if long_s < load.FLOOR_S or not row["beside"]:
        return Outcome(
            "inconclusive", f"the long prompt took only {long_s:.2f} s: nothing to wait for", figures, (plot,)
        )
    wait, gap = percentile(row["beside"], 95), max(row["gaps"], default=0.0)
    wrong = []
    if wait > bar:
        wrong.append(f"a short request waits {wait:.2f} s (p95) beside a prompt of {long_s:.1f} s; allowed {bar:.2f} s")
    if gap > bar:
        wrong.append(f"a running stream stops for {gap:.2f} s; allowed {bar:.2f} s")
    accused = load.verdict(wrong, row["late_s"], figures, (plot,))
    if accused:
        return accused
    return Outcome(
        "pass", f"beside {long_s:.1f} s of prompt: p95 wait {wait:.2f} s, longest gap {gap:.2f} s", figures, (plot,)
    )


async def _round(scope: Scope) -> dict[str, Any]:
    pool = await Pool.of(scope.client)
    alone = [await load.probe(scope, "alone", number) for number in range(scope["alone"])]
    tokens = load.size(scope, scope["prompt"])
    stream = load.Talk(scope, scope["stream_tokens"], "stream")
    try:
        await asyncio.sleep(0.3)
        start = load.now()
        long = asyncio.create_task(load.prefill(scope, pool, tokens, "long"))
        beside = await load.probes_until(scope, long, scope["every_s"], "beside")
        reply = await long
        end = load.now()
        await asyncio.sleep(0.2)
    finally:
        await stream.end()
    return {
        "prompt": reply.usage.prompt if reply.usage else tokens,
        "prefill_s": reply.timing.ttft_s or reply.timing.total_s,
        "alone": load.ttfts(alone),
        "beside": load.ttfts(beside),
        "gaps": stream.gaps(start, end),
    }


CHECK = Check(
    name="short",
    room="fair",
    title="Short requests beside a long prompt",
    bar=(
        "p95 wait of short requests and the longest gap of a running stream: "
        f"under {load.SHARE:.0%} of the long prompt's time or {load.FLOOR_S:g} s, whichever is longer"
    ),
    why="Reported: one long prompt froze all others for 440 s where no cap per step was set.",
    run=run,
    quick={"prompt": 60000, "alone": 4, "every_s": 0.5, "stream_tokens": 4000},
    full={"prompt": 120000, "alone": 8, "every_s": 1.0, "stream_tokens": 8000},
)
