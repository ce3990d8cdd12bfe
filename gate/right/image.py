"""Cells of an invented table in a picture: the figures cannot be guessed."""

from __future__ import annotations

import base64

from gate.check import Check, Outcome, judged
from gate.session import GREEDY, OFF, Scope
from smoketest import picture

CELLS = (("HOLM", "AUTUMN"), ("SKERRY", "SUMMER"), ("VOE", "WINTER"), ("HOLM", "SPRING"))


def answer(line: str, season: str) -> str:
    """What stands in a cell."""
    row = next(row for row in picture.ROWS if row[0] == line)
    return row[picture.HEADER.index(season)]


async def run(scope: Scope) -> Outcome:
    """One cell a request."""
    url = "data:image/png;base64," + base64.b64encode(picture.table_png()).decode()
    cells = CELLS[: scope["cells"]]
    right, first = 0, ""
    for line, season in cells:
        question = f"[{scope.tag(line, season)}] Which number stands in the row {line}, column {season}? Number only."
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
        row = await scope.ask(
            f"{line}/{season}", [{"role": "user", "content": content}], max_tokens=256, **GREEDY, **OFF
        )
        good = answer(line, season) in row["text"].replace(",", "")
        right += good
        first = first or ("" if good else f"{line}/{season} is {answer(line, season)}, read {row['text'][:40]!r}")
        scope.note(f"{right} right")
    return judged(right, len(cells), "cells read", first)


CHECK = Check(
    name="image",
    room="right",
    title="A table in a picture",
    bar="every cell is read exactly",
    why="Reported: a text-only template in the weights folder makes every image request fail.",
    run=run,
    quick={"cells": 2},
    full={"cells": 4},
)
