"""More and more streams at once: what the group yields together, and what each still gets."""

from __future__ import annotations

import time
from typing import Any

from gate import stats
from gate.check import Check, Outcome, Plot
from gate.session import Scope, together
from gate.speed.measure import answer, together_rate
from gate.speed.prompts import CLASSES

KEPT = 0.85  # of the best aggregate so far that more streams must still yield


async def run(scope: Scope) -> Outcome:
    """Each width several times with prompts of its own."""
    figures: dict[str, Any] = {}
    best, wrong, excuse = 0.0, "", ""
    for width in scope["widths"]:
        rows = []
        for number in range(scope["rounds"]):
            rows.append(await scope.once(f"{width}/{number}", lambda w=width, n=number: _batch(scope, w, n)))  # type: ignore[misc]
        rate = stats.median([row["rate"] for row in rows])
        figures[str(width)] = {
            "rate": rate,
            "per_stream": stats.median([row["per_stream"] for row in rows]),
            "ttft_s": stats.median([row["ttft_s"] for row in rows]),
            "server_queue_s": stats.median([row["server_queue_s"] for row in rows]),
        }
        excuse = excuse or next((row["late"] for row in rows if row["late"]), "")
        scope.note(f"{width} streams: {rate:.1f} tok/s together")
        if rate < KEPT * best and not wrong:
            wrong = f"{width} streams yield {rate:.1f} tok/s together, fewer yielded {best:.1f}"
        best = max(best, rate)
    widths = list(scope["widths"])
    lines = [
        {"name": "together", "x": widths, "y": [figures[str(width)]["rate"] for width in widths]},
        {"name": "each stream", "x": widths, "y": [figures[str(width)]["per_stream"] for width in widths]},
    ]
    plot = Plot("lines", "Streams at once", "streams", "tokens per second", {"lines": lines, "from_zero": True})
    shown = ", ".join(f"{width}: {figures[str(width)]['rate']:.1f}" for width in widths)
    if excuse:
        return Outcome("inconclusive", f"{excuse} (tok/s by streams: {shown})", figures, (plot,))
    return Outcome("fail" if wrong else "pass", wrong or f"tok/s together by streams: {shown}", figures, (plot,))


async def _batch(scope: Scope, width: int, number: int) -> dict[str, Any]:
    before = await scope.client.metrics()
    jobs = [
        answer(scope, CLASSES[place % 3], scope.tag(width, number, place), number * width + place, scope["tokens"])
        for place in range(width)
    ]
    started = time.perf_counter()
    with scope.session.lag.window() as late:
        replies = await together(*jobs)
    after = await scope.client.metrics()
    tokens, seconds = together_rate(replies)
    name = "vllm:request_queue_time_seconds"
    count = after.sum(f"{name}_count") - before.sum(f"{name}_count")
    queued = (after.sum(f"{name}_sum") - before.sum(f"{name}_sum")) / count if count else 0.0
    rates = [rate for reply in replies if (rate := reply.rate()) is not None]
    first = [reply.timing.ttft_s for reply in replies if reply.timing.ttft_s is not None]
    return {
        "rate": tokens / seconds if seconds else 0.0,
        "per_stream": stats.median(rates) if rates else 0.0,
        "ttft_s": stats.median(first),
        "late": late.complaint(seconds),
        "server_queue_s": queued,
        "client_queue_s": max(reply.timing.queue_s for reply in replies),
        "seconds": time.perf_counter() - started,
    }


CHECK = Check(
    name="sweep",
    room="speed",
    title="Streams at once",
    bar=f"more streams never yield less than {KEPT:.0%} of what fewer yielded together",
    why="Throughput should flatten under load, not fall.",
    run=run,
    quick={"widths": [1, 2, 4, 8], "rounds": 2, "tokens": 128},
    full={"widths": [1, 2, 4, 8, 16], "rounds": 3, "tokens": 512},
)
