"""From the boot to the facts of the sentence: this box and what the others last said, with ages instead of times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from entrypoint.status.truth import ANSWER_S, Box, Facts
from group.ask import boottime
from group.machine import ENGAGED
from group.view import About, by_address

if TYPE_CHECKING:
    from entrypoint.boot import Boot
    from entrypoint.discovery.verify import Member

SLACK_S = 20.0  # an idle engine's answer comes at most so much later than it is due


def facts_of(boot: Boot) -> Facts:
    """Everything this box knows that bears on whether the cluster is healthy."""
    now = boottime()
    members = list(boot.members.table.values()) if boot.members is not None else []
    labels = {progress.key: progress.label for progress in boot.board.progress}
    boxes = [_own(boot, now), *(_other(member, labels, now) for member in members)]
    boxes.sort(key=lambda box: by_address(box.lan) if box.lan else 0)
    idle_s = boot.settings.number("IDLE_CANARY_S") if boot.settings is not None else ANSWER_S
    facts = Facts(
        tp=boot.tp if boot.driver is not None else 0,
        model=boot.text("SERVED_NAME", "glm53"),
        boxes=tuple(boxes),
        compiling=boot.compiling or next((text for member in members if (text := _about(member).compiling)), ""),
        window_s=max(ANSWER_S, idle_s + SLACK_S),
        own=boot.lan,
    )
    return _in_generation(boot, facts, now)


def _in_generation(boot: Boot, facts: Facts, now: float) -> Facts:
    """With what the head says of the running generation; on the head that is this box itself."""
    own = boot.driver.own if boot.driver is not None else None
    if own is None or own.record is None or own.state not in ENGAGED:
        return facts
    head = own.record.head.lan
    member = boot.members.table.get(head) if boot.members is not None else None
    about = boot.about() if boot.is_head else _about(member) if member is not None else About()
    age = 0.0 if boot.is_head or member is None else now - member.seen_at
    identity, _, reason = about.alarm.partition(" ")
    return replace(
        facts,
        seats=tuple(seat.lan for seat in own.record.seats),
        together=own.together,
        selftest=about.selftest,
        failed=about.failed,
        alarm=reason if identity == own.record.id else "",
        answered_s=None if about.answered_ms < 0 else about.answered_ms / 1000 + age,
        stepped_s=None if about.stepped_ms < 0 else about.stepped_ms / 1000 + age,
        running=about.requests,
    )


def _own(boot: Boot, now: float) -> Box:
    own, board = boot.driver.own if boot.driver is not None else None, boot.board
    return Box(
        lan=boot.lan,
        name=_name(boot.hostname, boot.lan),
        state=own.state if own is not None else "",
        stage=board.current.label,
        step=board.current.step,
        refusals=tuple(str(one) for one in boot.refusals),
        ended=boot.ended[0],
        ended_s=now - boot.ended[1],
        alarms=tuple(text for _, text in sorted(boot.troubles.items())),
    )


def _other(member: Member, labels: dict[str, str], now: float) -> Box:
    view, about, age = member.sight.view, _about(member), now - member.seen_at
    return Box(
        lan=member.lan,
        name=_name(about.hostname, member.lan),
        heard_s=age,
        gone=member.sight.refused_began > member.sight.began,
        state=view.state if view is not None else "",
        stage=labels.get(about.stage, about.stage),
        step=about.step,
        refusals=about.refusals,
        ended=about.ended,
        ended_s=about.ended_ms / 1000 + age,
        alarms=about.troubles,
    )


def _about(member: Member) -> About:
    return member.sight.view.about if member.sight.view is not None else About()


def _name(hostname: str, lan: str) -> str:
    return f"{hostname} ({lan})" if hostname and lan else hostname or lan
