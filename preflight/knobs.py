"""The knobs that preflight reads."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob(
        "PREFLIGHT",
        "choice",
        "1",
        "Look at this box before sizing: 0 leaves it out, 1 shows a table, strict refuses to go on when a row fails.",
        scope="box",
        choices=("0", "1", "strict"),
    ),
)
