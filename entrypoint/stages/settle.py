"""Stages 6-9: preflight rows, sizing, the agreement, and the fabric check between accept and commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import model
from core.log import log
from core.plan import differing
from core.refusal import Refusal, Refusals
from core.row import Row, warnings_first
from core.units import show_size
from entrypoint import pagecache
from entrypoint.addresses import engine_addresses
from entrypoint.boot import Again, Boot
from entrypoint.sizing import packs
from entrypoint.sizing.sizing import BoxMemory
from entrypoint.stages import check, ground, meet, plans, rails, warmth
from entrypoint.watch import memory
from group.ask import boottime
from group.machine import ENGAGED
from preflight.checks import Scene, verdict
from preflight.checks import preflight as look
from preflight.checks.wanted import subnets
from preflight.facts.registration import probe
from preflight.facts.survey import survey

SETTLE_S = 1.0


async def preflight(boot: Boot) -> None:
    """One table of this box, warnings first, never fatal by default."""
    settings, _, _ = boot.need()
    facts = boot.facts
    assert facts is not None
    await check.warm_up(boot, settings)  # of a later generation
    boot.layout, together, wrong = rails.cabling(boot, settings)
    rails.in_rank_order(boot)
    if wrong:
        await _hold(boot, wrong)
    if settings.text("PREFLIGHT") == "0":
        if boot.layout is not None and boot.layout.topology == "ring":
            boot.verbs_order = (await asyncio.to_thread(probe)).names
        boot.rows = ()  # of an earlier round
        boot.board.step("off (PREFLIGHT=0)")
        return
    seen = await asyncio.to_thread(survey, boot.root, ground.disks(settings), os.environ)
    boot.verbs_order = seen.registered.names if seen.registered else ()
    scene = Scene(seen, rails.wanted(boot, settings))
    found = warnings_first((*together, *look(scene)))
    available = f"{show_size(facts.memory.available)} of {show_size(facts.memory.total)} available"
    rows = [Row("memory", "info", available)]
    rows += [Row(f"disk {path}", "info", f"{show_size(free)} free") for path, (_, free) in facts.disks.items()]
    boot.rows = warnings_first((*found, *rows))
    for row in boot.rows:
        if row.level != "ok":
            log("preflight", row.name, level=row.level, seen=row.seen)
    boot.board.step(verdict(found))
    failed = [row for row in found if row.level == "FAIL"]
    if failed and settings.text("PREFLIGHT") == "strict":
        await _stay_refused(boot, failed)


async def _stay_refused(boot: Boot, rows: Sequence[Row]) -> NoReturn:
    """PREFLIGHT=strict or FABRIC_CHECK=strict: what is wrong with this box is cured before it serves."""
    _, driver, _ = boot.need()
    found = tuple(Refusal(row.name, row.seen, row.expected or "nothing wrong", row.cure) for row in rows)
    boot.refuse_also(*found)
    if boot.exits:
        raise Refusals(found)
    await driver.over()


async def size(boot: Boot) -> None:
    """From the published facts of all members, so that all boxes come to the same plan: the smallest decides."""
    settings, _, _ = boot.need()
    views = meet.fit(boot)
    if meet.who(boot) != boot.formed or boot.elected is None:
        raise Again("a box came, went or started again")
    boxes = [BoxMemory(boot.hostname, boot.memory.total, boot.memory.available)]
    boxes += [BoxMemory(view.about.hostname, view.about.total, view.about.available) for view in views.values()]
    boxes.sort(key=lambda box: (box.available_bytes, box.total_bytes, box.name))
    try:
        plan, sizing = plans.sized_plan(boot, settings, boxes)
    except (Refusal, Refusals) as error:
        await _hold(boot, error.refusals)  # other boxes may bring other memory
    assert boot.facts is not None
    interfaces = {boot.lan: boot.facts.interfaces, **{lan: view.about.interfaces for lan, view in views.items()}}
    boot.netdevs = engine_addresses(interfaces, subnets(settings))
    boot.group_plan, boot.needed_bytes = plan, memory.needed(plan, sizing)
    warmth.choose(boot, settings, plan)
    pack = packs.rows(model.load(), Path(settings.text("MODEL_DIR"))) if plan.profile == "gb10" else ()
    boot.rows = warnings_first((*boot.rows, *sizing.rows, *pack))
    boot.pool, boot.budgets = sizing.pool, sizing.budgets
    boot.board.step(f"plan {plan.hash()}")


async def _hold(boot: Boot, found: tuple[Refusal, ...]) -> NoReturn:
    """Refuse as a group until a box comes, goes or starts again; then look anew."""
    _, driver, _ = boot.need()
    boot.refuse(group=found)
    if boot.exits:
        raise Refusals(found)
    await driver.until(lambda: meet.who(boot) != boot.formed)
    raise Again("the boxes have changed")


async def agree(boot: Boot) -> None:
    """The head proposes a generation, every box accepts it: here until this box has."""
    _, driver, _ = boot.need()
    if boot.elected is None or boot.group_plan is None:
        raise Again("no plan")
    driver.formation = plans.formation(boot.elected.order, boot.netdevs, boot.group_plan)
    driver.poke()
    began = boottime()
    while driver.own.state not in ENGAGED:
        if meet.who(boot) != boot.formed:
            raise Again("a box came, went or started again")
        views = meet.fit(boot)
        if boottime() - began > SETTLE_S:
            await _same_plan(boot)
        late = [
            f"{view.about.hostname} ({lan}) is {view.state}" for lan, view in views.items() if view.state != "ready"
        ]
        step = "waiting: " + "; ".join(late) if late else "all boxes are ready"
        boot.board.step(driver.trouble or step)
        await driver.until(lambda: True)
        await driver.changed(0.2)
    record = driver.own.record
    assert record is not None
    log("agree", "accepted", generation=record.id[:8], epoch=record.epoch, head=record.head.lan)


async def _same_plan(boot: Boot) -> None:
    """Equal settings and facts give equal plans; another hash is another version of the kit or its model.toml."""
    _, driver, _ = boot.need()
    mine = driver.formation.plan_hash if driver.formation else ""
    found = []
    for lan, view in sorted(meet.fit(boot).items()):
        if not view.plan_hash or view.plan_hash == mine:
            continue
        values = differing(dict(boot.about().plan), dict(view.about.plan))
        for name, (here, there) in list(values.items())[:5] or [("hash", (mine, view.plan_hash))]:
            seen = f"{name}: {here} on {boot.hostname} ({boot.lan}); {there} on {view.about.hostname} ({lan})"
            cure = "Run the same image and kit on every box, then up."
            found.append(Refusal("group plan", seen, "the same plan on all boxes", cure))
    if found:
        await _hold(boot, tuple(found))


async def fabric_check(boot: Boot) -> None:
    """Between accept and commit: what the rails carry, measured with all boxes. Then wait for the commit."""
    settings, driver, _ = boot.need()
    record = driver.own.record
    assert record is not None
    await pagecache.clear(boot, "fabric")
    if settings.text("FABRIC_CHECK") == "0":
        boot.board.step("off (FABRIC_CHECK=0)")
    else:
        try:
            found = await check.measure(boot, settings, record)
        finally:
            await check.cool_down(boot)
        boot.rows = warnings_first((*boot.rows, *found))
        for row in warnings_first(found):
            log("fabric", row.name, level=row.level, seen=row.seen)
        wrong = [row for row in found if row.level in ("FAIL", "WARN")]
        if wrong and settings.text("FABRIC_CHECK") == "strict":
            await _stay_refused(boot, wrong)
    driver.checked = record.id
    driver.poke()
    await driver.until(lambda: driver.launch is not None)
