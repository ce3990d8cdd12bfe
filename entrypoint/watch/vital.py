"""When the engine last gave a token, and when a step last came back: the signs of life the page speaks of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from entrypoint.watch.counters import Counters


@dataclass(frozen=True)
class Vital:
    """Times on CLOCK_BOOTTIME; None: never in this generation. running: requests in the engine."""

    answered_at: float | None = None
    stepped_at: float | None = None
    running: float = 0
    last: Counters | None = None


def look(known: Vital, counters: Counters | None, answered: bool, now: float) -> Vital:
    """`answered`: a question of the kit's own brought a token since the last look."""
    if answered:
        known = replace(known, answered_at=now, stepped_at=now)
    if counters is None:
        return known
    before = known.last
    if before is not None and counters.moved != before.moved:
        known = replace(known, stepped_at=now)
        if counters.generated > before.generated:
            known = replace(known, answered_at=now)
    return replace(known, running=counters.running + counters.waiting, last=counters)


def age_ms(at: float | None, now: float) -> int:
    """Milliseconds since, for another box; -1 for never."""
    return -1 if at is None else max(0, round(1000 * (now - at)))
