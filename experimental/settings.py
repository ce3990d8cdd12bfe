"""What the variables of an overlay may say: judged by ./glm53 before Docker, and in vLLM before a weight is read.

Standard library only: mounted beside vLLM, where the kit is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

# What a [[setting]] of overlay.toml accepts, beside a range such as "1-64".
FLAG, PATTERN = "flag", "pattern"
RANGE = re.compile(r"(\d+)-(\d+)")


def known(accepts: str) -> bool:
    """Whether `accepts` is something that `expected` can judge."""
    return accepts in (FLAG, PATTERN) or RANGE.fullmatch(accepts) is not None


def expected(accepts: str, text: str) -> str | None:
    """What should stand in place of `text`, or None when it is acceptable; an empty text is the default."""
    if not text:
        return None
    if accepts == FLAG:
        return None if text in ("0", "1") else "0 or 1"
    if accepts == PATTERN:
        try:
            re.compile(text)
        except re.error as error:
            return f"a regular expression ({error})"
        return None
    least, most = map(int, accepts.split("-"))
    fits = text.isascii() and text.isdigit() and least <= int(text) <= most
    return None if fits else f"a whole number from {least} to {most}"


def faults(accepted: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name, text and what was expected, for every variable of (name, accepts) that says something else."""
    for name, accepts in accepted:
        text = environment.get(name, "")
        wanted = expected(accepts, text)
        if wanted:
            yield name, text, wanted
