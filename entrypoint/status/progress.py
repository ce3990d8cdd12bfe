"""How far vLLM's start is, from what it printed last: the phase, and the share of it where a line counts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from entrypoint.watch.phases import FIRST, PHASES

PERCENT = re.compile(r"(?<![\d.])(\d{1,3})(?:\.\d+)?\s?%")
COUNT = re.compile(r"(?<![\d./:])(\d{1,6})/(\d{1,6})(?![\d./:])")


def progress(lines: Sequence[str]) -> tuple[str, float | None]:
    """(phase, share 0 to 1 or None). `lines`: the engine's last ones, newest last."""
    for line in reversed(lines):
        for one in PHASES:
            if one.mark.search(line):
                return one.name, _share(line)
    return FIRST.name, None


def _share(line: str) -> float | None:
    """`43%`, or `3/7`, as a share; a progress bar rewrites its line, so what stands last is the newest."""
    percents = PERCENT.findall(line)
    if percents and int(percents[-1]) <= 100:
        return int(percents[-1]) / 100
    counts = [(int(done), int(of)) for done, of in COUNT.findall(line)]
    good = [done / of for done, of in counts if of and done <= of]
    return good[-1] if good else None
