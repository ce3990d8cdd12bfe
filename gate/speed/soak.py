"""The same kind of work for a long time: does the step time or the wait creep up?"""

from __future__ import annotations

import time
from typing import Any

from gate import stats
from gate.check import Check, Outcome, Plot
from gate.session import Scope, together
from gate.speed.measure import answer, problem
from gate.speed.prompts import CLASSES

CHANGE = 0.05
LEVEL = 0.01
# A wait that grows by less cannot be told from the client's own timers: 5 % of a prefix hit's 5 ms is nothing.
LEAST_WAIT_S = 0.010


def judge(values: list[float], what: str, rising_is_bad: bool, least: float = 0.0) -> str | None:
    """The drift as a sentence, or None.

    It must be beyond chance, beyond CHANGE and, over the whole series, beyond `least` (in the values' unit), in the bad
    direction.
    """
    found = stats.trend(values)
    bad = found.change > CHANGE if rising_is_bad else found.change < -CHANGE
    bad = bad and abs(found.slope) * (len(values) - 1) > least
    return f"{what} drifts by {found.change:+.1%} over the soak (p {found.p:.1g})" if bad and found.p < LEVEL else None


async def run(scope: Scope) -> Outcome:
    """Rounds of several streams until the time is up; the time of earlier sittings counts."""
    rows: list[dict[str, Any]] = []
    spent = 0.0
    while spent < scope["seconds"] or len(rows) < scope["least_rounds"]:
        number = len(rows)
        row = await scope.once(str(number), lambda number=number: _round(scope, number))  # type: ignore[misc]
        rows.append(row)
        spent += row["seconds"]
        scope.note(f"{spent:.0f} of {scope['seconds']} s, {row['rate']:.1f} tok/s per stream")
    broken = next((row["problem"] for row in rows if row["problem"]), "")
    rates, waits = [row["rate"] for row in rows], [row["ttft_s"] for row in rows]
    figures = {
        "rounds": len(rows),
        "seconds": spent,
        "rate": stats.describe(rates),
        "ttft_s": stats.describe(waits),
        "rate_change": stats.trend(rates).change,
    }
    line = {"name": "per stream", "x": list(range(len(rates))), "y": rates}
    plot = Plot("lines", "Rate over the soak", "round", "tokens per second", {"lines": [line], "from_zero": True})
    wrong = [broken] if broken else []
    kept = [row for row in rows if not row["late"]]
    if len(kept) < 0.8 * len(rows):
        reason = f"in {len(rows) - len(kept)} of {len(rows)} rounds this client was late"
        return Outcome("inconclusive", reason, figures, (plot,))
    rates, waits = [row["rate"] for row in kept], [row["ttft_s"] for row in kept]
    drifts = (
        judge(rates, "the rate", False),
        judge(waits, "the wait for the first token", True, LEAST_WAIT_S),
    )
    wrong += [text for text in drifts if text]
    if wrong:
        return Outcome("fail", "; ".join(wrong), figures, (plot,))
    return Outcome(
        "pass",
        f"{len(rows)} rounds in {spent:.0f} s without drift (rate {stats.trend(rates).change:+.1%})",
        figures,
        (plot,),
    )


async def _round(scope: Scope, number: int) -> dict[str, Any]:
    started = time.perf_counter()
    width = scope["streams"]
    # each stream's class is its own all through the soak: rounds differ by nothing but time
    tokens = scope["tokens"]
    jobs = (answer(scope, CLASSES[p % 3], scope.tag(number, p), number * width + p, tokens) for p in range(width))
    with scope.session.lag.window() as late:
        replies = await together(*jobs)
    rates = [rate for reply in replies if (rate := reply.rate()) is not None]
    first = [reply.timing.ttft_s for reply in replies if reply.timing.ttft_s is not None]
    return {
        "rate": stats.median(rates) if rates else 0.0,
        "ttft_s": stats.median(first),
        "seconds": time.perf_counter() - started,
        "late": late.complaint(max((reply.timing.decode_s or 0.0) for reply in replies)),
        "problem": problem("soak", replies, None),
    }


CHECK = Check(
    name="soak",
    room="speed",
    title="Soak",
    bar=(
        f"no drift of rate or wait beyond {CHANGE:.0%} (a wait: and {LEAST_WAIT_S * 1000:.0f} ms) and beyond chance "
        f"(p {LEVEL:g}), and no suspect characters"
    ),
    why="Leaks and fragmentation show after an hour, not in a minute.",
    run=run,
    full={"seconds": 1800, "least_rounds": 20, "streams": 3, "tokens": 256},
)
