"""Stages 4-5: find the other boxes, agree on who is head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from core.log import log
from core.refusal import Refusal, Refusals
from entrypoint.boot import Again, Boot
from entrypoint.election import Candidate, Elected, candidate, elect, of_view, two_instances
from group.ask import boottime
from group.view import View

# A refusal of the group must hold this long: a box that moves to another address shows twice for a moment.
SETTLE_S = 0.4
FREE = ("joining", "ready")


def fit(boot: Boot) -> dict[str, View]:
    """Live members that are not on their way out. One with a fault of its own is not fit for an election: where a knob
    could not be read, what it shows is only that knob's default.
    """
    _, _, members = boot.need()
    return {lan: view for lan, view in members.live().items() if view.state != "leaving" and not view.about.unfit}


def candidates(boot: Boot, views: dict[str, View]) -> list[Candidate]:
    """This box and the fit members."""
    return [candidate(boot.lan, boot.about()), *(of_view(view) for view in views.values())]


def who(boot: Boot) -> tuple[tuple[str, str, int], ...]:
    """The incarnations that a plan is made of: when one changes, the plan is made anew."""
    _, driver, _ = boot.need()
    own = driver.own
    return tuple(sorted([(own.lan, own.instance, own.n), *((v.lan, v.instance, v.n) for v in fit(boot).values())]))


async def join(boot: Boot) -> None:
    """Wait, for ever, until exactly TP verified members are here and free. Refuses what no waiting cures."""
    settings, driver, _ = boot.need()
    boot.elected, boot.group_plan = None, None
    driver.formation = None
    driver.poke()
    began, noticed, refused_since = boottime(), False, 0.0
    while True:
        views = fit(boot)
        boxes = candidates(boot, views)
        found = () if boot.local_refusals else _faults(boot, boxes)
        refused_since = (refused_since or boottime()) if found else 0.0
        if not found or boottime() - refused_since >= SETTLE_S:
            boot.refuse(group=found)
        if boot.group_refusals and boot.exits:
            await _all_refuse(boot)
        waiting = _waiting(boot, views, boxes)
        if not found and not boot.refusals and not waiting:
            return
        late = boottime() - began > settings.number("JOIN_NOTICE_S") and not boot.refusals
        notice = notice_lines(boot) if late else []
        step = waiting or (f"refused: {boot.refusals[0].setting}" if boot.refusals else "the boxes differ")
        boot.board.step(step, "\n".join(notice))
        for line in () if noticed else notice:
            log("join", line)
        noticed = noticed or late
        await driver.changed(0.2)


def _faults(boot: Boot, boxes: Sequence[Candidate]) -> tuple[Refusal, ...]:
    _, _, members = boot.need()
    twins = tuple(two_instances(lan, found) for lan, found in sorted(members.shared_addresses().items()))
    result = elect(boxes)
    return twins + (result if isinstance(result, tuple) else ())


def _waiting(boot: Boot, views: dict[str, View], boxes: Sequence[Candidate]) -> str:
    """What is still missing, or "" when the group is complete and free."""
    _, driver, members = boot.need()
    refusing = {} if len(boxes) == boot.tp else members.live()
    for lan, view in sorted({**refusing, **views}.items()):
        if view.state == "refused":
            why = view.about.refusals[0] if view.about.refusals else "see its page"
            return f"{view.about.hostname} ({lan}) refuses: {why}"
    if len(boxes) < boot.tp:
        names = ", ".join(box.name for box in boxes)
        return f"{len(boxes)} of {boot.tp} boxes here: {names}"
    for lan, view in sorted(views.items()):
        if view.state not in FREE:
            return f"{view.about.hostname} ({lan}) is still {view.state}"
    return "" if driver.own.state in FREE else f"this box is {driver.own.state}"


async def _all_refuse(boot: Boot) -> NoReturn:
    """With ON_REFUSAL=exit: leave once the others have seen it too (a box that vanished would hide the fault)."""
    _, driver, members = boot.need()
    until = boottime() + 2.0
    while boottime() < until:
        views = members.live()
        # With no live member yet (a box at our own address is none) the others have not seen this one either.
        if views and all(view.state in ("refused", "leaving", "running") for view in views.values()):
            break
        await driver.changed(0.1)
    raise Refusals(boot.refusals)


def notice_lines(boot: Boot) -> list[str]:
    """After JOIN_NOTICE_S: who was seen, what was announced and heard, likely causes, and the exact PEERS= line."""
    _, driver, members = boot.need()
    live = members.live()
    lines = [f"verified: this box {boot.lan}" + "".join(f", {v.about.hostname} ({lan})" for lan, v in live.items())]
    lines += [f"{host}:{port}: {note}" for (host, port), note in sorted(members.hints.items()) if note != "verified"]
    for provider in boot.providers:
        lines += [f"{provider.name}: {line}" for line in provider.report()]
    lines += [
        f"likely: another box is not up yet, or its GROUP_NAME is not {driver.group}",
        f"likely: a firewall drops 5353/udp or {boot.status_port}/tcp, or a switch or Wi-Fi bridge drops multicast",
    ]
    known = sorted({*live, boot.lan})
    missing = ["<address of the missing box>"] * max(0, boot.tp - len(known))
    lines.append("without multicast, on every box in compose/.env: PEERS=" + ",".join([*known, *missing]))
    return lines


async def elect_head(boot: Boot) -> None:
    """The numerically lowest lan address, or as HEAD_HOST / ROLE say; one line, alike on every box."""
    result = elect(candidates(boot, fit(boot)))
    if not isinstance(result, Elected):
        raise Again("a box came or went during the election")
    boot.elected, boot.formed = result, who(boot)
    boot.board.step(result.line)
