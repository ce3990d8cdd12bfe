"""This box's own status, the whole of /status.json: never what another box said, but for the one sentence.

docs/page.md says who reads it; entrypoint/status/schemas/status.json is its shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.mask import mask
from core.stage import StageProgress
from entrypoint.status.memory import planned, segments
from entrypoint.status.progress import progress
from group.ask import boottime

if TYPE_CHECKING:
    from entrypoint.boot import Boot

PROGRESS_LINES = 40


def status(boot: Boot) -> dict[str, Any]:
    """The whole of /status.json."""
    now, verdict = boottime(), boot.board.verdict()
    current = boot.board.current
    return {
        "service": {
            "name": boot.text("SERVICE_NAME", "glm53"),
            "served_name": boot.text("SERVED_NAME", "glm53"),
            "hostname": boot.hostname,
            "version": boot.version,
            "profile": boot.text("ENGINE_PROFILE", "gb10"),
            "tp": boot.tp,
        },
        "image": boot.image or None,
        "box": box(boot),
        "stage": current.key,
        "stages": [_stage(boot, one, now) for one in boot.board.progress],
        "healthy": verdict.healthy,
        "mood": verdict.mood,
        "word": verdict.word,
        "sentence": f"{verdict.word}: {verdict.sentence}",
        "answer": _answer(boot, now),
        "troubles": [text for _, text in sorted(boot.troubles.items())],
        "alarms": _alarms(boot, now),
        "refusals": [
            {"setting": one.setting, "seen": mask(one.seen), "expected": one.expected, "cure": one.cure}
            for one in boot.refusals
        ],
        "election": _election(boot),
        "members": _members(boot, now),
        "generation": _generation(boot),
        "plan": _plan(boot),
        "rows": [row.as_dict() for row in boot.rows],
        "selftest": {"verdict": boot.selftest, "lines": list(boot.selftest_lines)},
        "engine": _engine(boot),
        "throughput": _throughput(boot, now),
        "load": boot.machine.load(),
        "memory": memory(boot),
        "url": f"http://{boot.lan or boot.hostname}:{boot.text('API_PORT', '8002')}/v1",
    }


def box(boot: Boot) -> dict[str, Any]:
    """Who this box is in the group."""
    own = boot.driver.own if boot.driver else None
    seat = own.record.seat(own.lan) if own and own.record else None
    order = boot.elected.order if boot.elected else ()
    rank = seat.rank if seat else order.index(boot.lan) if boot.lan in order else None
    return {
        "lan": boot.lan,
        "role": "undecided" if rank is None else "head" if rank == 0 else "worker",
        "rank": rank,
        "instance": own.instance if own else "",
        "n": own.n if own else 0,
        "state": own.state if own else "joining",
        "reason": own.reason if own else "",
        "ended": boot.ended[0],
    }


def memory(boot: Boot) -> dict[str, Any]:
    """Where this box's memory is, what the plan gave it, and where it is going; all in bytes."""
    machine, held = boot.machine, boot.machine.held()
    role = "head" if boot.is_head else "worker"
    found = next((one for one in boot.budgets if one.role == role), None)
    budget = {item.name: item.size for item in found.items} if found is not None else {}
    total = held.meminfo.get("MemTotal", 0) if held is not None else 0
    trend = machine.trend()
    return {
        "total": total,
        "available": trend.available,
        "segments": [_segment(one) for one in (segments(held, budget) if held is not None else ())],
        "plan": [_segment(one) for one in (planned(budget, total) if budget and total else ())],
        "slope_per_hour": None if trend.slope is None else round(trend.slope),
        "warning": trend.warning,
        "workers": [{"pid": one.pid, "reserved": one.reserved, "allocated": one.allocated} for one in machine.workers],
    }


def _segment(one: Any) -> dict[str, Any]:
    return {"name": one.name, "size": one.size, "group": one.group, "measured": one.measured}


def _answer(boot: Boot, now: float) -> dict[str, Any]:
    """Signs of life of the engine whose API this box runs; None on a worker: the head is asked."""
    vital = boot.vital
    return {
        "answered_s": None if vital.answered_at is None else round(now - vital.answered_at, 1),
        "stepped_s": None if vital.stepped_at is None else round(now - vital.stepped_at, 1),
        "requests": int(vital.running),
        "compiling": boot.compiling,
    }


def _alarms(boot: Boot, now: float) -> list[dict[str, Any]]:
    return [
        {"what": one.what, "count": one.count, "age_s": round(now - one.at, 1), "line": one.line}
        for _, one in sorted(boot.machine.alarms.items())
    ]


def _stage(boot: Boot, one: StageProgress, now: float) -> dict[str, Any]:
    phase, share = "", None
    if one.key == "prove" and one.state == "running" and boot.engine is not None and not boot.engine_ready:
        phase, share = progress(boot.engine.tail(PROGRESS_LINES))
    return {
        "key": one.key,
        "label": one.label,
        "state": one.state,
        "elapsed_s": None if one.started is None else round((one.ended or now) - one.started, 2),
        "began_s": None if one.started is None else round(now - one.started, 2),
        "deadline_s": one.deadline_s,
        "step": one.step,
        "detail": one.detail,
        "phase": phase,
        "share": share,
    }


def _election(boot: Boot) -> dict[str, Any] | None:
    elected = boot.elected
    if elected is None:
        return None
    return {"line": elected.line, "head": elected.head, "candidates": list(elected.order)}


def _members(boot: Boot, now: float) -> list[dict[str, Any]]:
    """Whom this box knows and polls: addresses and this box's own experience with them, nothing they said."""
    if boot.driver is None or boot.members is None:
        return []
    rows = [_row(boot.lan, boot.status_port, 0.0, True, "this box")]
    for member in sorted(boot.members.table.values(), key=lambda one: one.lan):
        age = round(now - member.seen_at, 1)
        rows.append(_row(member.lan, member.port, age, member.live(now), member.note))
    known = {(member.lan, member.port) for member in boot.members.table.values()}
    for (host, port), note in sorted(boot.members.hints.items()):
        if (host, port) not in known and not note.startswith(("is ", "this box")):
            rows.append(_row(host, port, None, False, note))
    return rows


def _row(lan: str, port: int, age_s: float | None, verified: bool, note: str) -> dict[str, Any]:
    return {
        "lan": lan,
        "port": port,
        "age_s": age_s,
        "verified": verified,
        "note": note,
        "url": f"http://{lan}:{port}",
    }


def _generation(boot: Boot) -> dict[str, Any] | None:
    record = boot.driver.own.record if boot.driver else None
    if record is None:
        return None
    seats = [seat.lan for seat in record.seats]
    return {"id": record.id, "epoch": record.epoch, "master_port": record.master_port, "seats": seats}


def _plan(boot: Boot) -> dict[str, Any] | None:
    plan = boot.group_plan
    if plan is None or boot.settings is None:
        return None
    values = []
    for name, value in sorted(plan.values.items()):
        knob = boot.settings.table[name].knob if name in boot.settings.table else None
        values.append(
            {
                "name": name,
                "value": mask(value.value) if isinstance(value.value, str) else value.value,
                "unit": knob.unit if knob else "",
                "source": value.source,
                "why": value.why or (knob.why if knob else ""),
                "measured": knob.measured if knob else "",
            }
        )
    return {"hash": plan.hash(), "values": values}


def _engine(boot: Boot) -> dict[str, Any]:
    engine = boot.engine
    running = engine is not None and boot.driver is not None and boot.driver.engine == "started"
    return {"pid": engine.pid if engine is not None and running else None, "running": running, "exit": boot.engine_exit}


def _throughput(boot: Boot, now: float) -> dict[str, Any] | None:
    """The head's history; None where there is none."""
    history = boot.history
    if not history.samples and history.totals is None:
        return None
    totals = history.totals
    return {
        **history.as_dict(now),
        "finished": totals.finished if totals else {},
        "preempted": totals.preempted if totals else 0,
        "waiting_why": totals.waiting if totals else {},
    }
