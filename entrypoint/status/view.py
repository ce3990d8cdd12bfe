"""From /status.json's dictionary to what the template prints: words, marks and numbers people read. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.row import ORDER
from core.units import show_seconds, show_size

REFRESH_BOOTING_S = 2
REFRESH_SERVING_S = 5
MARKS = {"done": "✓", "running": "●", "failed": "✕", "waiting": ""}
STATES = {"done": "done", "running": "running", "failed": "failed", "waiting": "waiting"}
# Sources that somebody or something chose; the rest are defaults and shown quieter.
CHOSEN = (".env", "shell", "overlay", "environment")
GOOD_VERDICTS = ("passed", "failed-as-expected", "off")


def view(status: Mapping[str, Any], hold: bool = False) -> dict[str, Any]:
    """The template's variables. `hold` leaves the refresh out."""
    healthy = bool(status["healthy"])
    refused = bool(status["refusals"])
    mood = "good" if healthy else "bad" if refused or _failed(status) else "busy"
    return {
        "status": status,
        "mood": mood,
        "word": {"good": "Serving", "bad": "Refused" if refused else "Failed", "busy": "Starting"}[mood],
        "refresh": None if hold else REFRESH_SERVING_S if healthy else REFRESH_BOOTING_S,
        "hold": hold,
        "stages": stages(status),
        "members": members(status["members"]),
        "plan": plan(status["plan"]),
        "rows": sorted(status["rows"], key=lambda row: ORDER.index(row["level"])),
        "selftest": _selftest(status["selftest"]),
        "log_tail": "\n".join(status["engine"]["log_tail"]),
    }


def stages(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry a stage: mark, class, time used, time allowed, how far the deadline is used up.

    What is ticked is what the boot itself calls done. A current stage that is not in the list ticks nothing: it is
    shown as a line of its own.
    """
    entries = [_stage(stage) for stage in status["stages"]]
    if status["stage"] not in {stage["key"] for stage in status["stages"]}:
        unknown = {"key": status["stage"], "label": status["stage"], "state": "failed", "step": "not in the stage list"}
        entries.append(_stage({**unknown, "elapsed_s": None, "deadline_s": None, "detail": ""}))
    return entries


def _stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    state = STATES.get(str(stage["state"]), "waiting")
    elapsed, deadline = stage["elapsed_s"], stage["deadline_s"]
    used = elapsed / deadline if elapsed is not None and deadline else None
    return {
        "key": stage["key"],
        "label": stage["label"],
        "state": state,
        "mark": MARKS[state],
        "elapsed": "" if elapsed is None or state == "waiting" else show_seconds(elapsed),
        "deadline": show_seconds(deadline) if deadline and state == "running" else "",
        "used": None if used is None or state != "running" else min(100, round(100 * used)),
        "late": state == "running" and used is not None and used > 1,
        "endless": state == "running" and deadline is None,
        "step": stage["step"] if state in ("running", "failed") else "",
        "detail": stage["detail"] if state in ("running", "failed") else "",
    }


def members(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The boxes in rank order, those without a rank last."""
    rows = []
    for member in sorted(found, key=lambda one: (one["rank"] is None, one["rank"] or 0)):
        age = member["age_s"]
        rows.append(
            {
                **member,
                "age": "" if age is None else "now" if age < 1 else f"{show_seconds(age)} ago",
                "rank": "" if member["rank"] is None else member["rank"],
                "url": member.get("url", ""),
                "mood": "good" if member["verified"] and member["state"] == "running" else _member_mood(member),
            }
        )
    return rows


def _member_mood(member: Mapping[str, Any]) -> str:
    return "bad" if not member["verified"] or member["state"] in ("refused", "leaving", "unknown") else "busy"


def plan(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The planned values, chosen ones first, each as a person reads it."""
    if found is None:
        return None
    values = [
        {**one, "shown": shown(one["value"], one["unit"]), "chosen": one["source"] in CHOSEN} for one in found["values"]
    ]
    return {"hash": found["hash"], "values": sorted(values, key=lambda one: not one["chosen"])}


def shown(value: Any, unit: str) -> str:
    """A planned value with its unit: bytes both ways, flags as on and off, an unset one as a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if unit == "bytes" and isinstance(value, int):
        return f"{show_size(value)} ({value})"
    if isinstance(value, int):
        return f"{value:,} {unit}".strip() if value >= 10_000 else f"{value} {unit}".strip()
    if isinstance(value, float):
        return f"{value:g} {unit}".strip()
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    return json.dumps(value)


def _selftest(found: Mapping[str, Any]) -> dict[str, Any]:
    verdict = str(found["verdict"])
    mood = "busy" if verdict == "pending" else "good" if verdict in GOOD_VERDICTS else "bad"
    return {"verdict": verdict.replace("-", " "), "lines": found["lines"], "mood": mood}


def _failed(status: Mapping[str, Any]) -> bool:
    return any(stage["state"] == "failed" for stage in status["stages"]) or status["selftest"]["verdict"] == "failed"
