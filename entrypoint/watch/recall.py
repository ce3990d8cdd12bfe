"""What a box remembers across starts of its kit, and what follows: caps and unclean reboots."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from core.log import log
from core.refusal import Refusal, Refusals
from entrypoint.boot import Boot
from entrypoint.watch import limits
from group.ask import boottime
from group.store import Store

LOOK_S = 1.0
HEAR_S = 2.0
TOLD = "was told to end"  # in the reason of a box that stops because it is to (group/machine.py)
BLOCKED, HELD = "memory after the stop", "Something else holds it: see ps aux --sort=-rss."


def _keep(store: Store, **values: int | str) -> None:
    try:
        store.keep(**values)
    except OSError as error:
        log("watch", f"{', '.join(values)} cannot be stored: {error}")


def kit_starts(boot: Boot) -> None:
    """At the start of the kit: was this box switched off under a running engine?"""
    _, driver, _ = boot.need()
    store, now = driver.store, boot.facts.boot_id if boot.facts else ""
    times = tuple(float(text) for text in store.text("reboots").split() if text.isdecimal())
    reboot = limits.rebooted(store.text("boot_id"), now, bool(store.count("serving")), times, time.time())
    _keep(store, boot_id=now, serving=0, reboots=" ".join(f"{at:.0f}" for at in reboot.times))
    if reboot.happened:
        log("facts", "this box went down while its engine was up", unclean_reboots_today=len(reboot.times))
    if reboot.blocked:
        seen = f"{len(reboot.times)} unclean reboots within 24 h while serving"
        cure = (
            "Look at journalctl -k -b -1 and the power; then stop and start this box's kit: a clean stop forgets them."
        )
        boot.refuse_also(Refusal("reboots", seen, "at most one", cure))
    for cause, text in limits.CAUSES.items():
        cap = int(boot.text("RETRIES", "5"))
        if store.count(f"tries_{cause}") >= cap:
            boot.refuse_also(_capped(boot, text, store.count(f"tries_{cause}"), ""))


def engine_is_up(boot: Boot) -> None:
    """Before the engine is executed: what the next start of the kit may find."""
    _, driver, _ = boot.need()
    record = driver.own.record
    seat = record.seat(boot.lan) if record is not None else None
    if record is None or seat is None:
        return
    _keep(driver.store, serving=1)


def clean_stop(boot: Boot) -> None:
    """Told to end: nothing is held against the next start."""
    _, driver, _ = boot.need()
    _keep(driver.store, serving=0, reboots="", **{f"tries_{cause}": 0 for cause in limits.CAUSES})


async def generation_ended(boot: Boot, reason: str, died: bool, served_s: float) -> None:
    """Count this end if it is ours; wait before the next try, or stay down after the last one."""
    settings, driver, _ = boot.need()
    store, cause = driver.store, limits.cause(reason, died, served_s > 0)
    if not cause:
        return
    if died:
        await hear_all(boot, HEAR_S)
    gone = _gone(boot)
    if died and gone:
        log("watch", f"not counted: {gone} went away, and an engine does not outlive its peers")
        return
    key = f"tries_{cause}"
    cap, reset = settings.integer("RETRIES"), settings.number("RETRY_RESET_S")
    again = limits.another(store.count(key), cap, served_s, reset)
    _keep(store, **{key: again.count})
    text = f"{again.count} of {cap}: {limits.CAUSES[cause]}"
    log("watch", text, reason=reason)
    if again.stop:
        boot.refuse_also(_capped(boot, limits.CAUSES[cause], again.count, reason))
        if boot.exits:
            raise Refusals(boot.local_refusals)
    elif again.pause_s:
        boot.board.step(f"waiting {again.pause_s:g}s before the next try; {text}")
        with suppress(TimeoutError):
            async with asyncio.timeout(again.pause_s):
                await boot.leave.wait()


async def hear_all(boot: Boot, longest_s: float) -> None:
    """Until every other seat has answered or refused anew: an engine that lost its peer ends before the next poll says
    that the peer's kit is gone, and that end would be told, and counted, as our own.
    """
    _, driver, members = boot.need()
    record, began = driver.own.record, boottime()
    others = [seat.lan for seat in record.seats if seat.lan != boot.lan] if record is not None else []
    members.poke()
    while boottime() - began < longest_s:
        sights = members.sights()
        if all(lan in sights and max(sights[lan].began, sights[lan].refused_began) > began for lan in others):
            return
        await driver.changed(0.1)


def _gone(boot: Boot) -> str:
    """A box of this generation whose kit is gone or new, or that was told to end; "" when all are the same."""
    _, driver, members = boot.need()
    record, sights = driver.own.record, members.sights()
    for seat in record.seats if record is not None else ():
        sight = sights.get(seat.lan)
        if seat.lan == boot.lan or sight is None or sight.view is None:
            continue
        told = sight.view.state == "leaving" or (sight.view.state == "stopping" and TOLD in sight.view.reason)
        if sight.refused_began > sight.began or sight.view.instance != seat.instance or told:
            return seat.lan
    return ""


def _capped(boot: Boot, what: str, count: int, reason: str) -> Refusal:
    seen = f"{count} times in a row: {what}" + (f" ({reason})" if reason else "")
    logs = boot.text("LOG_DIR", "/logs")
    cure = f"Read {logs}/vllm.log and {logs}/evidence; then stop and start this box's kit: a clean stop forgets them."
    return Refusal("RETRIES", seen, f"fewer than {boot.text('RETRIES', '5')}", cure)
