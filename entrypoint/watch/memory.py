"""The memory of this box: what an incarnation has to offer, what a rank needs, and the wait until it is back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from core.log import log
from core.plan import GroupPlan
from core.row import Row, warnings_first
from core.units import show_seconds, show_size
from entrypoint.boot import Boot
from entrypoint.sizing.sizing import Sizing
from entrypoint.watch import limits
from group.ask import boottime
from preflight.checks.scene import link_to
from preflight.facts import memory

LOOK_S = 1.0
BLOCKED, HELD = "memory after the stop", "Something else holds it: see ps aux --sort=-rss."
PART = 0.97  # of what was available at the start: a box never gets back every page


def offer(boot: Boot) -> None:
    """What this incarnation has to offer; published once, so that all boxes size alike."""
    boot.memory = memory(boot.root)
    boot.first_available = boot.first_available or boot.memory.available


def needed(plan: GroupPlan, sizing: Sizing) -> int:
    """Bytes that a rank takes on this kind of box: the larger of head and worker; in the lab the KV space alone."""
    floors = [sum(item.size for item in one.items if item.name == "host floor") for one in sizing.budgets]
    ranks = [budget.used - floor for budget, floor in zip(sizing.budgets, floors, strict=True)]
    return max(ranks, default=int(plan.get("KV_CACHE_MEMORY") or 0))


async def back(boot: Boot) -> None:
    """After a stop: until the memory that a rank needs is available again; while it is not, this box is blocked."""
    known, told, began = None, False, boottime()
    # Never more than the box had to offer when the kit started: what ran then may run again.
    least = min(boot.needed_bytes, int(PART * boot.first_available))
    while least and not boot.leave.is_set():
        available = memory(boot.root).available
        known, how = limits.settle(known, available, least, boottime())
        if how == "enough":
            break
        seen = f"{show_size(available)} of memory available, a rank needs {show_size(least)}"
        boot.board.step(f"{'blocked' if how else 'waiting'}: {seen}", HELD)
        if how and not told:
            log("stop", f"memory does not come back: {seen}", level="FAIL")
            boot.rows = warnings_first(
                (*boot.rows, Row(BLOCKED, "FAIL", seen, "enough for a rank", HELD, link_to(BLOCKED)))
            )
            told = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await boot.leave.wait()
    if told:
        boot.rows = tuple(row for row in boot.rows if row.name != BLOCKED)
        log("stop", "memory is back", took=show_seconds(boottime() - began))
