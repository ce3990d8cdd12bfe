"""Count to 200: a long answer in which every line can be checked."""

from __future__ import annotations

from gate.check import Check, Outcome, judged
from gate.session import GREEDY, OFF, Scope

UP_TO = 200
PROMPT = f"Write the whole numbers from 1 to {UP_TO}, one per line, digits only, and nothing else."


def first_bad(text: str, up_to: int = UP_TO) -> str | None:
    """None when the lines are exactly 1..up_to; else what the first wrong line says."""
    lines = text.strip().split("\n")
    for number in range(1, up_to + 1):
        seen = lines[number - 1].strip() if number <= len(lines) else "nothing"
        if seen != str(number):
            return f"line {number} reads {seen[:40]!r}"
    return None if len(lines) == up_to else f"{len(lines) - up_to} lines too many"


async def run(scope: Scope) -> Outcome:
    """Greedy, thinking off; each run has its own tag so that no cache answers."""
    right, wrong = 0, ""
    for number in range(scope["runs"]):
        prompt = f"[{scope.tag(number)}]\n{PROMPT}"
        row = await scope.ask(str(number), prompt, max_tokens=scope.budget(1000), **GREEDY, **OFF)
        bad = first_bad(row["text"])
        right += bad is None
        wrong = wrong or (bad or "")
        scope.note(f"{right} of {number + 1} clean")
    return judged(right, scope["runs"], "counts to 200 clean", wrong)


CHECK = Check(
    name="count",
    room="right",
    title="Count to 200",
    bar="every line of every run is the right number",
    why="Reported on this model: a template that closes thinking wrongly corrupts 3 to 8 of 8 long answers.",
    run=run,
    quick={"runs": 2},
    full={"runs": 5},
)
