"""Evidence before the end: the head raises an alarm, every box collects, then the head gives the generation up."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.log import log
from entrypoint.boot import Boot
from evidence.collect import collect
from group.ask import boottime

TOGETHER_S = 4.0  # so long the head waits for the others' evidence
COLLECT_S = 5.0


async def end_generation(boot: Boot, reason: str) -> None:
    """For the head: all collect, then the generation is over for `reason`."""
    _, driver, members = boot.need()
    record = driver.own.record
    assert record is not None
    boot.alarm = f"{record.id} {reason}"
    log("watch", reason, generation=record.id[:8])
    members.poke()
    until = boottime() + TOGETHER_S
    await gather(boot, reason)
    others = {seat.lan for seat in record.seats if seat.lan != boot.lan}
    while boottime() < until:
        live = members.live()
        if all(lan not in live or live[lan].about.collected == record.id for lan in others):
            break
        members.poke()
        await asyncio.sleep(0.2)
    driver.abort = reason
    driver.poke()


async def attend(boot: Boot) -> None:
    """For a worker: collect once when the head raises an alarm for our generation."""
    _, driver, _ = boot.need()
    record, view = driver.own.record, boot.head_view()
    if record is None or view is None or boot.collected == record.id:
        return
    identity, _, reason = view.about.alarm.partition(" ")
    if identity == record.id:
        await gather(boot, f"the head says: {reason}")


async def gather(boot: Boot, reason: str) -> None:
    """Collect on this box, once a generation; a folder that cannot be written is said and stops nothing."""
    settings, driver, members = boot.need()
    record = driver.own.record
    if record is None or boot.collected == record.id:
        return
    boot.collected = record.id
    summary: dict[str, Any] = {
        "reason": reason,
        "lan": boot.lan,
        "state": driver.own.state,
        "incarnation": [driver.own.instance, driver.own.n],
        "record": asdict(record),
        "rank": asdict(boot.activity),
        "views": {lan: asdict(view) for lan, view in members.live().items()},
    }
    engine = boot.engine
    pids = engine.pids() if engine is not None else ()
    tail = engine.tail(200) if engine is not None else boot.last_tail
    logs = Path(settings.text("LOG_DIR"))
    try:
        async with asyncio.timeout(COLLECT_S):
            folder = await asyncio.to_thread(collect, logs, record.id[:8], summary, tail, pids, boot.root)
    except (OSError, TimeoutError) as error:
        log("watch", f"no evidence: {error or 'not within the time'}")
        return
    log("watch", f"evidence in {folder}", reason=reason)
