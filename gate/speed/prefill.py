"""Cold prefill at exact prompt lengths. A figure counts only when the server itself says that nothing was cached."""

from __future__ import annotations

from typing import Any

from gate import stats
from gate.check import Check, Outcome, Plot
from gate.session import Scope
from gate.tokens import Pool

STEADY = 0.05


async def run(scope: Scope) -> Outcome:
    """Every size, every round, with a prompt of its own."""
    pool = await Pool.of(scope.client)
    limit = scope.session.limit
    sizes = [size for size in scope["sizes"] if not limit or size + 8 <= limit]
    if not sizes:
        sizes = [int(limit * 0.8)]
    by_size: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for size in sizes:
        for number in range(scope["rounds"]):
            key = f"{size}/{number}"
            row = await scope.once(key, lambda size=size, key=key: _one(scope, pool, size, key))  # type: ignore[misc]
            by_size[size].append(row)
            scope.note(f"{size} tokens: {row['rate']:.0f} tok/s")
    warm = [f"{size}: {row['cached']} tokens cached" for size, rows in by_size.items() for row in rows if row["cached"]]
    off = [
        f"{size} asked, {row['prompt']} counted"
        for size, rows in by_size.items()
        for row in rows
        if row["prompt"] != size
    ]
    figures, noisy = {}, []
    for size, rows in by_size.items():
        rates = [row["rate"] for row in rows]
        figures[str(size)] = {
            "rate": stats.median(rates),
            "ttft_s": stats.median([row["ttft_s"] for row in rows]),
            "spread": stats.spread(rates),
            "rounds": rows,
        }
        if stats.spread(rates) > STEADY:
            noisy.append(f"{size} tokens {stats.spread(rates):.0%}")
    line = {"name": "median", "x": sizes, "y": [figures[str(size)]["rate"] for size in sizes]}
    plot = Plot("lines", "Cold prefill", "prompt tokens", "tokens per second", {"lines": [line], "from_zero": True})
    shown = ", ".join(f"{size} tokens {figures[str(size)]['rate']:.0f} tok/s" for size in sizes)
    if off:
        return Outcome("fail", f"the server counts another prompt: {off[0]}", figures, (plot,))
    if warm:
        return Outcome("inconclusive", f"a prompt was not cold ({warm[0]}): choose another --series", figures, (plot,))
    late = next((row["late"] for rows in by_size.values() for row in rows if row["late"]), "")
    if late:
        return Outcome("inconclusive", f"{late} ({shown})", figures, (plot,))
    if noisy:
        return Outcome("inconclusive", f"spread above {STEADY:.0%}: {', '.join(noisy)} ({shown})", figures, (plot,))
    return Outcome("pass", shown, figures, (plot,))


async def _one(scope: Scope, pool: Pool, size: int, key: str) -> dict[str, Any]:
    before = await scope.client.metrics()
    prompt = pool.prompt(size, scope.tag(key))
    with scope.session.lag.window() as lag:
        reply = await scope.client.complete(prompt, max_tokens=1, temperature=0, ignore_eos=True)
    after = await scope.client.metrics()
    assert reply.usage is not None
    name = "vllm:prefix_cache_hits_total"
    cached = reply.usage.cached
    if cached is None:
        cached = int(after.sum(name) - before.sum(name))
    seconds = reply.timing.ttft_s or reply.timing.total_s
    return {
        "prompt": reply.usage.prompt,
        "cached": cached,
        "ttft_s": seconds,
        "rate": reply.usage.prompt / seconds,
        "late": lag.complaint(seconds),
        "queue_s": reply.timing.queue_s,
    }


CHECK = Check(
    name="prefill",
    room="speed",
    title="Cold prefill",
    bar=f"every prompt has exactly the length asked for, none of it cached, and rounds agree within {STEADY:.0%}",
    why="Two prompts that shared a prefix once passed for 3,365 tok/s (reported).",
    run=run,
    quick={"sizes": [8000, 32000], "rounds": 2},
    full={"sizes": [8000, 32000, 128000], "rounds": 4},
)
