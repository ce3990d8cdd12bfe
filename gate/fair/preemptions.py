"""Preemptions over the whole gate: answers thrown back to the queue because KV space ran out."""

from __future__ import annotations

from gate.check import Check, Outcome
from gate.session import Scope

NAME = "vllm:num_preemptions_total"


async def run(scope: Scope) -> Outcome:
    """The counter now against the counter when the gate began."""
    found = await scope.session.counters()
    if NAME not in found:
        return Outcome("inconclusive", "the server does not count preemptions in /metrics")
    count = int(found[NAME] - scope.session.at_start.get(NAME, 0.0))
    figures = {"preemptions": count}
    return Outcome("fail" if count else "pass", f"{count} preemptions since the gate began", figures)


CHECK = Check(
    name="preemptions",
    room="fair",
    title="No preemptions",
    bar="none during the gate",
    why="A preempted answer is computed twice; with a pinned KV cache it means the sizing is wrong.",
    run=run,
    quick={"tries": 1},
    full={"tries": 1},
)
