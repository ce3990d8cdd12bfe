"""What the page shows: one dictionary of this box, read-only, made from the boot's own data at every request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core.log import log
from core.stage import Stage, StageProgress
from group.ask import boottime

if TYPE_CHECKING:
    from entrypoint.boot import Boot


class Board:
    """The stage list with times, and `status()` for /status.json, /healthz and the page."""

    def __init__(self, stages: Sequence[Stage[Boot]], boot: Boot) -> None:
        self.boot = boot
        self.progress = [StageProgress(stage.key, stage.label, deadline_s=stage.deadline_s) for stage in stages]
        self.current = self.progress[0]

    # -- written by the boot ---------------------------------------------------------------------------

    def begin(self, key: str) -> None:
        """A stage starts; what comes after it waits again."""
        index = next(i for i, progress in enumerate(self.progress) if progress.key == key)
        for later in self.progress[index:]:
            later.state, later.started, later.ended, later.step, later.detail = "waiting", None, None, "", ""
        self.current = self.progress[index]
        self.current.state, self.current.started = "running", boottime()

    def step(self, text: str, detail: str = "") -> None:
        """What the current stage is doing; logged when it changes."""
        if text != self.current.step:
            log(self.current.key, text)
        self.current.step, self.current.detail = text, detail

    def end(self, *, failed: bool = False) -> None:
        """The current stage is over."""
        self.current.state, self.current.ended = ("failed" if failed else "done"), boottime()

    # -- read by the page ------------------------------------------------------------------------------

    def healthy(self) -> bool:
        """True when this box is part of a generation that has proved itself."""
        return self.unhealthy_because() == ""

    def unhealthy_because(self) -> str:
        """One sentence, or "" when all is well."""
        boot = self.boot
        if boot.refusals:
            return f"refused: {boot.refusals[0]}"
        driver = boot.driver
        if driver is None or driver.own.state != "running" or driver.own.record is None:
            step = f": {self.current.step}" if self.current.step else ""
            return f"{self.current.label}{step}"
        if not driver.own.together:
            return "not all boxes have started their engine yet"
        if boot.is_head:
            return "" if boot.proved else f"{self.current.label}: {self.current.step or 'self-test pending'}"
        view = boot.head_view()
        if view is None:
            return f"the head {driver.own.record.head.lan} does not answer on the LAN"
        return "" if view.about.healthy else f"the head is not healthy: {view.about.stage} {view.about.step}".rstrip()

    def status(self) -> dict[str, Any]:
        """The whole of /status.json."""
        boot, now = self.boot, boottime()
        why = self.unhealthy_because()
        sentence = why or f"serving {boot.text('SERVED_NAME', 'glm53')} on {boot.tp} boxes"
        return {
            "service": {
                "name": boot.text("SERVICE_NAME", "glm53"),
                "served_name": boot.text("SERVED_NAME", "glm53"),
                "hostname": boot.hostname,
                "version": boot.version,
                "profile": boot.text("ENGINE_PROFILE", "gb10"),
            },
            "image": boot.image or None,
            "box": self._box(),
            "stage": self.current.key,
            "stages": [_stage(progress, now) for progress in self.progress],
            "healthy": not why,
            "sentence": sentence,
            "refusals": [
                {"setting": one.setting, "seen": one.seen, "expected": one.expected, "cure": one.cure}
                for one in boot.refusals
            ],
            "election": self._election(),
            "members": self._members(now),
            "generation": self._generation(),
            "plan": self._plan(),
            "rows": [row.as_dict() for row in boot.rows],
            "selftest": {"verdict": boot.selftest, "lines": list(boot.selftest_lines)},
            "engine": self._engine(),
            "url": f"http://{boot.lan or boot.hostname}:{boot.text('API_PORT', '8002')}/v1",
        }

    def _box(self) -> dict[str, Any]:
        boot, own = self.boot, self.boot.driver.own if self.boot.driver else None
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
        }

    def _election(self) -> dict[str, Any] | None:
        elected = self.boot.elected
        if elected is None:
            return None
        return {"line": elected.line, "head": elected.head, "candidates": list(elected.order)}

    def _members(self, now: float) -> list[dict[str, Any]]:
        boot = self.boot
        if boot.driver is None or boot.members is None:
            return []
        own = self._box()
        rows = [
            {
                "lan": boot.lan,
                "hostname": boot.hostname,
                "state": own["state"],
                "role": own["role"],
                "rank": own["rank"],
                "stage": self.current.key,
                "age_s": 0.0,
                "verified": True,
                "note": "this box",
                "url": f"http://{boot.lan}:{boot.status_port}",
            }
        ]
        order = boot.elected.order if boot.elected else ()
        for member in sorted(boot.members.table.values(), key=lambda member: member.lan):
            view = member.sight.view
            rank = order.index(member.lan) if member.lan in order else None
            rows.append(
                {
                    "lan": member.lan,
                    "hostname": view.about.hostname if view else "",
                    "state": view.state if view else "unknown",
                    "role": "undecided" if rank is None else "head" if rank == 0 else "worker",
                    "rank": rank,
                    "stage": view.about.stage if view else "",
                    "age_s": round(now - member.seen_at, 1),
                    "verified": member.live(now),
                    "note": member.note or (view.about.refusals[0] if view and view.about.refusals else ""),
                    "url": f"http://{member.lan}:{member.port}",
                }
            )
        known = {(member.lan, member.port) for member in boot.members.table.values()}
        for (host, port), note in sorted(boot.members.hints.items()):
            if (host, port) not in known and not note.startswith(("is ", "this box")):
                rows.append(_stranger(host, port, note))
        return rows

    def _generation(self) -> dict[str, Any] | None:
        driver = self.boot.driver
        record = driver.own.record if driver else None
        if record is None:
            return None
        return {"id": record.id, "epoch": record.epoch, "master_port": record.master_port}

    def _plan(self) -> dict[str, Any] | None:
        plan, boot = self.boot.group_plan, self.boot
        if plan is None or boot.settings is None:
            return None
        values = []
        for name, value in sorted(plan.values.items()):
            knob = boot.settings.table[name].knob if name in boot.settings.table else None
            values.append(
                {
                    "name": name,
                    "value": value.value,
                    "unit": knob.unit if knob else "",
                    "source": value.source,
                    "why": value.why or (knob.why if knob else ""),
                    "measured": knob.measured if knob else "",
                }
            )
        return {"hash": plan.hash(), "values": values}

    def _engine(self) -> dict[str, Any]:
        engine, boot = self.boot.engine, self.boot
        running = engine is not None and boot.driver is not None and boot.driver.engine == "started"
        return {
            "pid": engine.pid if engine is not None and running else None,
            "running": running,
            "exit": boot.engine_exit,
            "log_tail": list(engine.tail(50)) if engine is not None else list(boot.last_tail),
        }


def _stage(progress: StageProgress, now: float) -> dict[str, Any]:
    elapsed = None if progress.started is None else round((progress.ended or now) - progress.started, 2)
    return {
        "key": progress.key,
        "label": progress.label,
        "state": progress.state,
        "elapsed_s": elapsed,
        "deadline_s": progress.deadline_s,
        "step": progress.step,
        "detail": progress.detail,
    }


def _stranger(host: str, port: int, note: str) -> dict[str, Any]:
    """A hint that is not (yet) a member: shown with the reason."""
    return {
        "lan": host,
        "hostname": "",
        "state": "unknown",
        "role": "undecided",
        "rank": None,
        "stage": "",
        "age_s": None,
        "verified": False,
        "note": note,
        "url": f"http://{host}:{port}",
    }
