"""What a start finds warm: the tiers of this box's caches, all boxes' beside each other, and what changed since the
last generation that served here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from core.log import log
from core.plan import Command, GroupPlan, differing
from core.row import Row, warnings_first
from core.settings import Settings
from core.units import show_seconds
from entrypoint import caches
from entrypoint.boot import Boot
from group.ask import boottime
from image import identity

LOCKS_S = 20.0  # a cache holds many files; looking for locks may not hold up a start for longer
SHOWN = 8  # differences in one message


def choose(boot: Boot, settings: Settings, plan: GroupPlan) -> None:
    """The tiers that this plan uses on this box, and their state for the others to see."""
    root = settings.text("CACHE_ROOT")
    try:
        image = identity.read()
    except (OSError, ValueError):
        image = {}  # a damaged image is told elsewhere
    version = caches.vllm_version(image, settings.text("ENGINE_PYTHON"))
    boot.cache_paths = caches.tiers(plan, version).paths(root) if root else {}
    boot.caches = caches.state(boot.cache_paths)


async def before_launch(boot: Boot, settings: Settings, todo: Command) -> None:
    """Rows about the caches and the plan; autotune results and ownerless locks are taken away. Raises Refusal."""
    _, driver, members = boot.need()
    record = driver.own.record
    assert record is not None
    live = members.live()
    states = {f"{boot.hostname} ({boot.lan})": boot.caches}
    for seat in record.seats:
        if seat.lan in live:
            states[f"{live[seat.lan].about.hostname} ({seat.lan})"] = live[seat.lan].about.caches
    order = tuple(seat.lan for seat in record.seats)
    found = list(caches.rows(states))
    cold = caches.cold_by_rank(boot.cache_paths, order.index(boot.lan), order)
    if cold:
        found.append(Row("rank order", "info", cold))
    news = changes(boot)
    if news:
        found.append(Row("plan", "info", news))
    for row in found:
        log("launch", row.name, level=row.level, seen=row.seen)
    names = {"caches", "rank order", "plan"}
    boot.rows = warnings_first((*(row for row in boot.rows if row.name not in names), *found))
    if caches.forget_autotune(todo, differ=caches.autotune_differs(states.values())):
        log("launch", "autotune results of an earlier start removed")
    await sweep_locks(settings)


def changes(boot: Boot) -> str:
    """One message of what is new against the plan that served here last; "" for nothing, or for a first start."""
    _, driver, _ = boot.need()
    assert boot.group_plan is not None
    try:
        before = json.loads(driver.store.text("plan") or "{}")
    except ValueError:
        before = {}
    found = differing(before, flat(boot.group_plan)) if before else {}
    shown = [f"{name}: {was} -> {now}" for name, (was, now) in list(found.items())[:SHOWN]]
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"changed on all boxes since it last served: {'; '.join(shown)}{more}" if found else ""


def flat(plan: GroupPlan) -> dict[str, str]:
    """A plan as names with texts: what is stored and compared."""
    whole = {**plan.comparable(), **plan.comparable()["values"]}
    return {name: str(value) for name, value in whole.items() if name != "values"}


def remember(boot: Boot) -> None:
    """A generation serves: its caches are warm, and its plan is what the next one is compared with."""
    _, driver, _ = boot.need()
    record = driver.own.record
    seat = record.seat(boot.lan) if record is not None else None
    if record is None or seat is None or boot.group_plan is None:
        return
    wrong = caches.served(boot.cache_paths, seat.rank, tuple(one.lan for one in record.seats))
    if wrong:
        log("prove", f"the caches cannot be kept: {wrong}; the next start may be a cold one", level="WARN")
    boot.caches = caches.state(boot.cache_paths)
    try:
        driver.store.keep(plan=json.dumps(flat(boot.group_plan)))
    except OSError as error:
        log("prove", f"the plan cannot be stored: {error}")


async def sweep_locks(settings: Settings) -> None:
    """Lock files that a killed compiler left: the next one would wait for ever. No engine of this box runs now."""
    began = boottime()
    root = Path(settings.text("CACHE_ROOT"))
    try:
        async with asyncio.timeout(LOCKS_S):
            removed = await asyncio.to_thread(caches.sweep_locks, root)
    except TimeoutError:
        log(
            "launch", f"{root} holds too many files to look for lock files within {show_seconds(LOCKS_S)}", level="WARN"
        )
        return
    if removed:
        took = show_seconds(boottime() - began)
        log("launch", "lock files without an owner removed", count=len(removed), first=removed[0], took=took)
