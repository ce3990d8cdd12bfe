"""Decode behind a long prompt: what is left of the rate when the cache is deep."""

from __future__ import annotations

from typing import Any

from client import metrics as prometheus
from gate import stats
from gate.check import Check, Outcome, Plot
from gate.session import Scope
from gate.tokens import Pool

LEFT = 0.5


async def run(scope: Scope) -> Outcome:
    """Depths in turn, rounds in the outer loop so that drift does not look like depth."""
    pool = await Pool.of(scope.client)
    limit, answer = scope.session.limit, scope["tokens"]
    depths = [depth for depth in scope["depths"] if not limit or depth + answer + 16 <= limit]
    found: dict[int, list[dict[str, Any]]] = {depth: [] for depth in depths}
    for number in range(scope["rounds"]):
        for depth in depths:
            row = await scope.once(f"{depth}/{number}", lambda d=depth, n=number: _one(scope, pool, d, n))  # type: ignore[misc]
            found[depth].append(row)
            scope.note(f"depth {depth}: {row['rate']:.1f} tok/s" if row["rate"] else f"depth {depth}")
    figures: dict[str, Any] = {}
    for depth, rows in found.items():
        rates = [row["rate"] for row in rows if row["rate"]]
        if not rates:
            return Outcome("inconclusive", f"no rate could be told at depth {depth}", figures)
        steps = [row["ms_per_step"] for row in rows if row["ms_per_step"]]
        figures[str(depth)] = {
            "rate": stats.median(rates),
            "ms_per_step": stats.median(steps) if steps else None,
            "rounds": rows,
        }
    line = {"name": "median", "x": depths, "y": [figures[str(depth)]["rate"] for depth in depths]}
    plot = Plot(
        "lines",
        "Decode rate by depth",
        "tokens before the answer",
        "tokens per second",
        {"lines": [line], "from_zero": True},
    )
    shown = ", ".join(f"{depth}: {figures[str(depth)]['rate']:.1f} tok/s" for depth in depths)
    late = next((row["late"] for rows in found.values() for row in rows if row["late"]), "")
    if late:
        return Outcome("inconclusive", f"{late} ({shown})", figures, (plot,))
    start, last = figures[str(depths[0])]["rate"], figures[str(depths[-1])]["rate"]
    if last < LEFT * start:
        return Outcome(
            "fail", f"only {last / start:.0%} of the rate is left at depth {depths[-1]} ({shown})", figures, (plot,)
        )
    if len(depths) < len(scope["depths"]):
        return Outcome(
            "inconclusive", f"the context of {limit} tokens holds no deeper prompt ({shown})", figures, (plot,)
        )
    return Outcome("pass", shown, figures, (plot,))


async def _one(scope: Scope, pool: Pool, depth: int, number: int) -> dict[str, Any]:
    before = await scope.client.metrics()
    prompt = pool.prompt(max(16, depth), scope.tag(depth, number))
    with scope.session.lag.window() as late:
        reply = await scope.client.complete(prompt, max_tokens=scope["tokens"], temperature=0, ignore_eos=True)
    drafting = prometheus.drafting(before, await scope.client.metrics())
    seconds = reply.timing.decode_s
    return {
        "rate": reply.rate(),
        "late": late.complaint(seconds or 0.0),
        "ttft_s": reply.timing.ttft_s,
        "decode_s": seconds,
        "tokens_per_step": drafting.tokens_per_step,
        "ms_per_step": 1000 * seconds / drafting.steps if seconds and drafting.steps else None,
    }


CHECK = Check(
    name="depth",
    room="speed",
    title="Decode at depth",
    bar=f"at least {LEFT:.0%} of the rate at depth 0 is left at the deepest",
    why="Sparse attention promises that a deep cache costs little.",
    run=run,
    quick={"depths": [0, 8000], "tokens": 128, "rounds": 2},
    full={"depths": [0, 8000, 64000], "tokens": 256, "rounds": 3},
)
