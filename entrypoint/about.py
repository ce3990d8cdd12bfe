"""What this box tells the others beside the protocol: the `about` of its view, which group/view.py explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoint.watch.vital import age_ms
from group.ask import boottime
from group.view import About

if TYPE_CHECKING:
    from entrypoint.boot import Boot

# Characters, and items of a list: well within what the readers of a view take, whatever happens here.
SENTENCE = 1900
WORDS = 400
MOST = 20


def about(boot: Boot) -> About:
    """This box as the others may see it now."""
    facts, stage, now = boot.facts, boot.board.current, boottime()
    members = boot.members.live() if boot.members is not None else {}
    planned = boot.group_plan.values if boot.group_plan is not None else {}
    return About(
        hostname=boot.hostname,
        boot_id=facts.boot_id if facts else "",
        tp=boot.tp,
        topology=boot.topology,
        head_host=boot.text("HEAD_HOST", ""),
        role=boot.text("ROLE", ""),
        settings=boot.group_settings,
        interfaces=tuple(one for one in facts.interfaces if one.addresses) if facts else (),
        total=boot.memory.total,
        available=boot.memory.available,
        peers=tuple(f"{lan}:{view.port}" for lan, view in sorted(members.items())),
        plan={name: str(value.value) for name, value in sorted(planned.items())},
        refusals=tuple(str(one)[:SENTENCE] for one in boot.refusals[:MOST]),
        unfit=bool(boot.local_refusals),
        stage=stage.key,
        step=stage.step[:SENTENCE],
        selftest=boot.selftest,
        failed=_failed_question(boot)[:SENTENCE],
        healthy=boot.proved,
        alarm=boot.alarm[:SENTENCE],
        collected=boot.collected,
        compiling=boot.compiling[:WORDS],
        pulse=boot.pulse,
        caches=boot.caches[:WORDS],
        ended=boot.ended[0][:SENTENCE],
        ended_ms=age_ms(boot.ended[1], now),
        answered_ms=age_ms(boot.vital.answered_at, now),
        stepped_ms=age_ms(boot.vital.stepped_at, now),
        requests=int(boot.vital.running),
        troubles=tuple(text[:SENTENCE] for _, text in sorted(boot.troubles.items())[:MOST]),
    )


def _failed_question(boot: Boot) -> str:
    """The self-test's first bad line, without the mark; "" while there is none."""
    return next((line.removeprefix("FAIL ") for line in boot.selftest_lines if line.startswith("FAIL ")), "")
