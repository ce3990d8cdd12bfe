"""The same greedy request many times over: how many different answers come back."""

from __future__ import annotations

import random
from collections import Counter
from itertools import zip_longest
from typing import Any

from gate.check import Check, Outcome
from gate.right.needle import line
from gate.right.tools import TOOLS
from gate.session import GREEDY, OFF, Scope, together


def first_difference(one: str, other: str) -> int:
    """The place of the first differing character; the length of both when they are equal."""
    for place, (left, right) in enumerate(zip_longest(one, other)):
        if left != right:
            return place
    return len(one)


def _said(row: dict[str, Any]) -> str:
    calls = "".join(f"|{call['name']}({call['arguments']})" for call in row["tool_calls"])
    return str(row["reasoning"]) + "|" + str(row["text"]) + calls


async def run(scope: Scope) -> Outcome:
    """A long agent-like prompt, one at a time; then several at once, which is reported but not judged."""
    limit = scope.session.limit
    target = min(scope["tokens"], int(limit * 0.5)) if limit else scope["tokens"]
    draw = random.Random(scope.tag("prompt"))
    sample = "\n".join(line(place, draw) for place in range(100))
    per_line = (await scope.client.tokenize(sample))["count"] / 100
    body = "\n".join(line(place, draw) for place in range(max(2, int(target / per_line))))
    chat = [{"role": "user", "content": f"{body}\n\nDescribe what the log shows, briefly."}]
    options: dict[str, Any] = {"max_tokens": 48, "seed": 1234, "tools": TOOLS, "tool_choice": "auto", **GREEDY, **OFF}
    alone = []
    for number in range(scope["runs"]):
        alone.append(_said(await scope.ask(f"alone/{number}", chat, **options)))
        scope.note(f"{len(set(alone))} different of {len(alone)}")
    width = scope["at_once"]
    crowd = []
    for batch in range(max(1, scope["runs"] // width)):
        rows = await together(*(scope.ask(f"crowd/{batch}.{n}", chat, **options) for n in range(width)))
        crowd += [_said(row) for row in rows]
    counts = Counter(alone)
    majority, most = counts.most_common(1)[0]
    figures = {
        "answers_one_at_a_time": len(alone),
        "distinct_among_them": len(counts),
        "off_the_majority": len(alone) - most,
        "answers_at_once": len(crowd),
        "distinct_among_those": len(set(crowd)),
    }
    if len(counts) == 1:
        return Outcome(
            "pass",
            f"{len(alone)} answers alike; {len(crowd)} asked {width} at once: {len(set(crowd))} distinct",
            figures,
        )
    other = next(text for text in counts if text != majority)
    where = first_difference(majority, other)
    reason = f"{len(alone) - most} of {len(alone)} diverge from the majority, first at character {where}"
    return Outcome("fail", reason, figures)


CHECK = Check(
    name="determinism",
    room="right",
    title="The same greedy request again and again",
    bar="one at a time, all answers are the same; several at once are reported, not judged",
    why="A race or an uninitialised buffer shows as a token that changes; reported 10 of 40 on a stock image.",
    run=run,
    quick={"tokens": 8000, "runs": 8, "at_once": 4},
    full={"tokens": 42000, "runs": 40, "at_once": 4},
)
