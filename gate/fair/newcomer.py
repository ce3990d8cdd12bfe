"""A newcomer while others get long answers: it must not wait one of them out."""

from __future__ import annotations

import asyncio
from typing import Any

from client.reply import ClientError
from gate.check import Check, Outcome
from gate.fair import load
from gate.session import Scope
from gate.stats import describe, percentile


async def run(scope: Scope) -> Outcome:
    """Several long answers, then a newcomer, several times."""
    rows = []
    for number in range(scope["rounds"]):
        rows.append(await scope.once(str(number), lambda number=number: load.timed(scope, _round(scope, number))))  # type: ignore[misc]
        scope.note(f"newcomer {number + 1} waited {rows[-1]['ttft_s']:.2f} s")
    waits = [row["ttft_s"] for row in rows]
    gaps = [gap for row in rows for gap in row["gaps"]]
    figures = {**load.classes(newcomer_ttft=waits, stream_gaps=gaps), "streams": scope["streams"]}
    wrong = []
    if max(waits) > load.FLOOR_S + 2 * percentile(gaps, 95):
        wrong.append(f"a newcomer waited {max(waits):.2f} s for its first token beside {scope['streams']} long answers")
    if gaps and max(gaps) > load.FLOOR_S:
        wrong.append(f"a long answer stopped for {max(gaps):.2f} s when the newcomer came")
    accused = load.verdict(wrong, max(row["late_s"] for row in rows), figures)
    if accused:
        return accused
    seen = describe(waits)
    return Outcome("pass", f"newcomers wait {seen['median']:.2f} s (longest {seen['max']:.2f} s)", figures)


async def _round(scope: Scope, number: int) -> dict[str, Any]:
    streams = [load.Talk(scope, scope["tokens"], number, place) for place in range(scope["streams"])]
    try:
        await _all_running(scope, streams)
        start = load.now()
        reply = await load.probe(scope, "newcomer", number)
        await asyncio.sleep(0.3)
        end = load.now()
    finally:
        results = await asyncio.gather(*(stream.end() for stream in streams), return_exceptions=True)
    for found in results:
        if isinstance(found, ClientError):
            raise found
    gaps = [gap for stream in streams for gap in stream.gaps(start, end)]
    return {"ttft_s": reply.timing.ttft_s if reply.timing.ttft_s is not None else reply.timing.total_s, "gaps": gaps}


async def _all_running(scope: Scope, streams: list[load.Talk]) -> None:
    """Until every stream has begun; a server that runs fewer at once shows in the newcomer's wait, so 10 s suffice."""
    until = load.now() + scope["settle_s"]
    while load.now() < until and any(len(stream.arrivals) < 3 and not stream.task.done() for stream in streams):
        await asyncio.sleep(0.02)


CHECK = Check(
    name="newcomer",
    room="fair",
    title="A newcomer beside long answers",
    bar=(
        f"its first token comes within {load.FLOOR_S:g} s and two gaps of the others, "
        f"and none of them stops for more than {load.FLOOR_S:g} s"
    ),
    why="Reported: a scheduler that let a newcomer wait out another's whole answer.",
    run=run,
    quick={"streams": 4, "tokens": 3000, "rounds": 2, "settle_s": 10.0},
    full={"streams": 6, "tokens": 6000, "rounds": 6, "settle_s": 30.0},
)
