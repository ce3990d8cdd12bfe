"""How often a box may try again, what an unclean reboot means, and when memory that does not come back has settled.

Pure: counts in, counts and a verdict out.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86400.0
# What a box's own end of a generation counts as. Others' ends count where they happened.
CAUSES = {
    "start": "the engine ended before it served",
    "serving": "the engine ended while serving",
    "wedge": "the engine was wedged",
    "stall": "the engine did not come up",
}


def cause(reason: str, died: bool, served: bool) -> str:
    """Key of CAUSES for the end of a generation as this box saw it; "" when the cause lies elsewhere."""
    if reason.startswith("wedged"):
        return "wedge"
    if died:
        return "serving" if served else "start"
    return "stall" if reason.startswith("vLLM") else ""


@dataclass(frozen=True)
class Try:
    """count: ends by this cause in a row; pause_s: before the next try; stop: the cap is reached."""

    count: int
    pause_s: float
    stop: bool


def another(count: int, cap: int, served_s: float, reset_s: float) -> Try:
    """The next try after `count` earlier ends by the same cause; serving for `reset_s` forgets them."""
    count = 1 if served_s >= reset_s else count + 1
    pause = (0.0, 2.0, 5.0, 15.0, 30.0, 60.0)[min(count, 6) - 1]
    return Try(count, pause, count >= cap)


@dataclass(frozen=True)
class Reboot:
    """times: of unclean reboots within a day (wall clock of this box alone); blocked: the second one."""

    times: tuple[float, ...]
    happened: bool
    blocked: bool


def rebooted(before: str, now: str, served: bool, times: tuple[float, ...], at: float) -> Reboot:
    """`before`, `now`: boot ids; `served`: an engine was up when the kit last wrote, and no clean stop followed."""
    young = tuple(time for time in times if 0 <= at - time < DAY_S)
    happened = bool(before) and before != now and served
    if happened:
        young = (*young, at)
    return Reboot(young, happened, len(young) >= 2)


@dataclass(frozen=True)
class Settling:
    """The memory after a stop. best: the most that was available, and since when it has not risen."""

    best: int
    since: float


RISE_BYTES = 32 * 1024**2
SETTLED_S = 10.0


def settle(known: Settling | None, available: int, needed: int, now: float) -> tuple[Settling, str]:
    """(known now, "enough", "settled" or "" while it still rises)."""
    if known is None or available > known.best + RISE_BYTES:
        known = Settling(available, now)
    if available >= needed:
        return known, "enough"
    return known, "settled" if now - known.since >= SETTLED_S else ""
