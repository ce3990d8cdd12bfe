"""The rules that end a generation nobody reported broken. Pure: (what was known, what is seen, limits) -> what is due.

Never on one missed probe: a rule needs an unbroken stretch of looks in which nothing moved.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal

from entrypoint.watch.counters import Counters

LOOKS = 3  # fewer looks than this prove nothing
LONGEST_GAP_S = 5.0  # of the time between two looks no more counts: the kit itself, or the machine, stood still


@dataclass(frozen=True)
class Limits:
    """Seconds. wedge_s: work and no token for so long is a wedge; idle_s: no work for so long asks for one token."""

    wedge_s: float
    idle_s: float


@dataclass(frozen=True)
class Seen:
    """One look.

    counters   of the head's vLLM; None when /metrics did not answer
    compiling  a compiler runs, or a kernel cache grows, on any box
    asked_at   when the canary that is under way was sent; None: none is
    answered   a canary brought a token since the last look
    """

    now: float
    counters: Counters | None
    compiling: str = ""
    asked_at: float | None = None
    answered: bool = False


@dataclass(frozen=True)
class Known:
    """What the looks so far have shown. since: of the stretch without movement; idle_since: last work or token."""

    since: float
    idle_since: float
    moved: tuple[float, ...] = ()
    running: float = 0
    looks: int = 0
    last: float = 0


Due = Literal["", "canary"]


def look(known: Known, seen: Seen, limits: Limits) -> tuple[Known, Due, str]:
    """(what is known now, whether a canary is due, why the generation is wedged or "")."""
    counters = seen.counters
    moved = counters.moved if counters is not None else known.moved
    running = counters.running + counters.waiting if counters is not None else known.running
    alive = seen.answered or bool(seen.compiling) or moved != known.moved
    if counters is None and seen.asked_at is None and not alive:
        # Missed probes are no evidence: that time does not count. A question of our own will tell.
        shifted = known.since + max(0.0, seen.now - max(known.last, known.since))
        known = replace(known, since=shifted, last=seen.now)
        return known, "canary" if seen.now - known.idle_since >= limits.idle_s else "", ""
    busy = running > 0 or seen.asked_at is not None
    if alive or not busy:
        # The stretch begins anew; a canary under way is work since it was sent.
        idle_since = seen.now if alive else known.idle_since
        known = Known(seen.now, idle_since, moved, running, 0, seen.now)
        due: Due = "canary" if not busy and seen.now - idle_since >= limits.idle_s else ""
        return known, due, ""
    gap = max(0.0, seen.now - known.last - LONGEST_GAP_S)
    looks = known.looks + 1
    known = replace(known, since=known.since + gap, moved=moved, running=running, looks=looks, last=seen.now)
    still = seen.now - known.since
    if still < limits.wedge_s or known.looks < LOOKS:
        return known, "", ""
    what = f"{running:g} requests" if running else "a one-token question"
    return known, "", f"wedged: {what} in the engine, and for {still:.0f}s no token, no step, no KV growth, no compiler"


@dataclass(frozen=True)
class Still:
    """Since when something has not moved."""

    since: float
    mark: Hashable = None
    looks: int = 0


def stood(known: Still, mark: Hashable, now: float) -> tuple[Still, float]:
    """(known now, seconds for which `mark` has not changed; 0 before LOOKS looks)."""
    if mark != known.mark:
        return Still(now, mark), 0.0
    known = replace(known, looks=known.looks + 1)
    return known, now - known.since if known.looks >= LOOKS else 0.0
