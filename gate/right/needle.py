"""A code in one line of a long log, at several lengths and depths: past 131,072 tokens an index bug of this model's
attention showed on other hardware (reported), so at least one length lies beyond."""

from __future__ import annotations

import random
from typing import Any

from gate.check import Check, Outcome, judged
from gate.session import GREEDY, OFF, Scope

BEYOND = 131072
NAMES = ("Marsk", "Ulvoya", "Fennick", "Tarbet", "Quendal", "Osmund")
ROOM_FOR_ANSWER = 400


def line(number: int, draw: random.Random) -> str:
    """One line of the log; never the same twice."""
    return (
        f"{number:06d} buoy {draw.randrange(900) + 100} reports wind {draw.randrange(40)} knots, swell "
        f"{draw.randrange(60) / 10} m, battery {draw.randrange(100)} percent"
    )


async def haystack(scope: Scope, tokens: int, depth: float, secret: str, tag: str) -> str:
    """A log of about `tokens` tokens with the line `secret` at `depth` (0..1)."""
    draw = random.Random(tag)
    sample = "\n".join(line(number, draw) for number in range(200))
    per_line = (await scope.client.tokenize(sample))["count"] / 200
    count = max(4, int(tokens / per_line))
    lines = [f"log {tag}", *(line(number, draw) for number in range(count))]
    lines.insert(1 + int(depth * count), secret)
    return "\n".join(lines)


async def run(scope: Scope) -> Outcome:
    """Ask for the code at every length and depth that the context holds."""
    limit = scope.session.limit
    lengths = [length for length in scope["lengths"] if not limit or length + ROOM_FOR_ANSWER < limit]
    if not lengths and limit:
        lengths = [int(limit * 0.6)]
    found, cells, wrong = 0, [], ""
    for length in lengths:
        for place, depth in enumerate(scope["depths"]):
            tag = scope.tag(length, depth)
            name = NAMES[place % len(NAMES)]
            code = f"{tag[:4].upper()}-{tag[4:8].upper()}"
            row = await _ask(scope, length, depth, tag, name, code)
            hit = code in row["text"] + row["reasoning"]
            found += hit
            wrong = wrong or ("" if hit else f"{length} tokens at depth {depth:g}: {row['text'][:80]!r}")
            cells.append({"tokens": row["usage"]["prompt"], "depth": depth, "found": hit, "seconds": row["total_s"]})
            scope.note(f"{found} of {len(cells)} found, {length} tokens")
    longest = max((cell["tokens"] for cell in cells), default=0)
    outcome = judged(found, len(cells), "codes found", wrong, longest_prompt=longest)
    if outcome.verdict == "pass" and longest <= BEYOND and scope["lengths"][-1] > BEYOND:
        reason = f"{outcome.reason}, but the context of {limit} tokens holds no prompt past {BEYOND}"
        return Outcome("inconclusive", reason, outcome.figures)
    return outcome


async def _ask(scope: Scope, length: int, depth: float, tag: str, name: str, code: str) -> dict[str, Any]:
    async def make() -> dict[str, Any]:
        text = await haystack(scope, length, depth, f"The access code of the {name} beacon is {code}.", tag)
        question = f"{text}\n\nWhat is the access code of the {name} beacon? Answer with the code only."
        chat = [{"role": "user", "content": question}]
        return (await scope.client.chat(chat, max_tokens=200, **GREEDY, **OFF)).as_dict()

    return await scope.once(f"{length}/{depth:g}", make)


CHECK = Check(
    name="needle",
    room="right",
    title="Needle in a long log",
    bar="every code is found, and at least one prompt is longer than 131,072 tokens",
    why="Sparse attention that reads the wrong blocks still writes fluently; only a fact far back shows it.",
    run=run,
    quick={"lengths": [8000, 140000], "depths": [0.1, 0.5, 0.9]},
    full={"lengths": [32000, 128000, 140000, 256000, 480000], "depths": [0.1, 0.5, 0.9]},
)
