"""Three long prompts at once: nobody may wait for much more than his share, and a short request not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from gate.check import Check, Outcome
from gate.fair import load
from gate.session import Scope, together
from gate.stats import percentile
from gate.tokens import Pool

OVERHEAD = 1.25  # times the work of three done alone


async def run(scope: Scope) -> Outcome:
    """One alone, then three at once with short probes beside them."""
    row = await scope.once("round", lambda: load.timed(scope, _round(scope)))
    alone, last = row["alone_s"], max(row["three"])
    bar = 3 * alone * OVERHEAD
    waits = row["beside"]
    figures = {"alone_s": alone, "three_s": row["three"], "allowed_s": bar, **load.classes(beside_ttft=waits)}
    if alone < load.FLOOR_S / 3:
        return Outcome("inconclusive", f"one prompt alone takes only {alone:.2f} s", figures)
    wrong = []
    if last > bar:
        wrong.append(f"the last of three is read after {last:.1f} s; three alone would take {3 * alone:.1f} s")
    wait = percentile(waits, 95) if waits else 0.0
    if wait > load.allowed(last):
        wrong.append(f"a short request waits {wait:.2f} s (p95) beside them; allowed {load.allowed(last):.2f} s")
    accused = load.verdict(wrong, row["late_s"], figures)
    if accused:
        return accused
    shown = ", ".join(f"{seconds:.1f}" for seconds in sorted(row["three"]))
    return Outcome(
        "pass", f"read after {shown} s (one alone {alone:.1f} s); short requests wait {wait:.2f} s (p95)", figures
    )


async def _round(scope: Scope) -> dict[str, Any]:
    pool = await Pool.of(scope.client)
    tokens = load.size(scope, scope["prompt"])
    alone = await load.prefill(scope, pool, tokens, "alone")
    long = asyncio.create_task(together(*(load.prefill(scope, pool, tokens, "three", n) for n in range(3))))
    try:
        beside = await load.probes_until(scope, long, scope["every_s"], "beside")
    finally:
        if not long.done():
            long.cancel()
    three = await long
    return {"alone_s": alone.timing.ttft_s, "three": load.ttfts(three), "beside": load.ttfts(beside)}


CHECK = Check(
    name="three",
    room="fair",
    title="Three long prompts at once",
    bar=(
        f"the last is read within {OVERHEAD} times the time three take alone; "
        f"short requests wait under {load.SHARE:.0%} of it or {load.FLOOR_S:g} s, whichever is longer"
    ),
    why="Work that is interleaved badly costs more than work done in turn.",
    run=run,
    quick={"prompt": 30000, "every_s": 0.5},
    full={"prompt": 60000, "every_s": 1.0},
)
