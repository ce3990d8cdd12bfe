"""From /cluster.json and /status.json to what the templates print: words, marks and numbers people read. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.row import ORDER
from core.units import show_seconds, show_size
from entrypoint.status import view_memory, view_speed, view_time

REFRESH_BOOTING_S = 2
REFRESH_SERVING_S = 5
MARKS = {"done": "✓", "running": "●", "failed": "✕", "waiting": ""}
# Sources that somebody or something chose; the rest are defaults and shown quieter.
CHOSEN = (".env", "shell", "overlay", "environment")
GOOD_VERDICTS = ("passed", "failed-as-expected", "off")

Status = Mapping[str, Any]


def view(status: Status, cluster: Mapping[str, Any], hold: bool = False) -> dict[str, Any]:
    """The templates' variables. `hold` leaves the refresh out and opens what is folded."""
    boxes = cluster["boxes"]
    seats = status["generation"]["seats"] if status["generation"] else []
    return {
        "status": status,
        "cluster": cluster,
        "mood": cluster["mood"],
        "word": cluster["word"],
        "sentence": cluster["sentence"].removeprefix(f"{cluster['word']}: "),
        "refresh": None if hold else REFRESH_SERVING_S if cluster["healthy"] else REFRESH_BOOTING_S,
        "hold": hold,
        "stages": stages(status),
        "timeline": view_time.timeline(boxes),
        "boxes": [_box(row, seats) for row in boxes],
        "strangers": [one for one in status["members"] if not one["verified"] and one["age_s"] is None],
        "alarms": _alarms(boxes),
        "speed": view_speed.speed(boxes),
        "memory": view_memory.memory(boxes),
        "plan": plan(status["plan"]),
        "rows": rows(boxes),
        "selftest": _selftest(_head(boxes, status)),
    }


def _head(boxes: Sequence[Mapping[str, Any]], status: Status) -> Mapping[str, Any]:
    """The head's self-test, as any box's page shows it."""
    told = [row["status"] for row in boxes if row["status"] and row["status"]["box"]["role"] == "head"]
    found: Mapping[str, Any] = (told[0] if told else status)["selftest"]
    return found


def stages(status: Status) -> list[dict[str, Any]]:
    """One entry a stage: mark, class, time used, time allowed, how far the deadline is used up.

    What is ticked is what the boot itself calls done. A current stage that is not in the list ticks nothing: it is
    shown as a line of its own.
    """
    entries = [stage_entry(stage) for stage in status["stages"]]
    if status["stage"] not in {stage["key"] for stage in status["stages"]}:
        unknown = {"key": status["stage"], "label": status["stage"], "state": "failed", "step": "not in the stage list"}
        blank = {"elapsed_s": None, "deadline_s": None, "detail": "", "phase": "", "share": None}
        entries.append(stage_entry({**unknown, **blank}))
    return entries


def stage_entry(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage for the list. used: percent of its own progress where that is known, else of its deadline."""
    state = stage["state"] if stage["state"] in MARKS else "waiting"
    elapsed, deadline, share = stage["elapsed_s"], stage["deadline_s"], stage["share"]
    running = state == "running"
    used = elapsed / deadline if elapsed is not None and deadline else None
    active = state in ("running", "failed")
    return {
        "key": stage["key"],
        "label": stage["label"],
        "state": state,
        "mark": MARKS[state],
        "elapsed": "" if elapsed is None or state == "waiting" else show_seconds(elapsed),
        "deadline": show_seconds(deadline) if deadline and running else "",
        "used": None if not running or used is None else min(100, round(100 * used)),
        "share": None if share is None or not running else round(100 * share),
        "phase": stage["phase"] if running else "",
        "late": running and used is not None and used > 1,
        "step": stage["step"] if active else "",
        "detail": stage["detail"] if active else "",
    }


def _box(row: Mapping[str, Any], seats: Sequence[str]) -> dict[str, Any]:
    """A line of the table of boxes. A box that does not answer keeps its rank: `seats` are those of the generation."""
    status, age = row["status"], row["heard_s"]
    shown_age = "" if age is None else "this box" if row["here"] else "now" if age < 3 else f"{show_seconds(age)} ago"
    base = {"lan": row["lan"], "url": row["url"], "here": row["here"], "age": shown_age, "error": row["error"]}
    base["name"] = row["name"]
    if status is None:
        blank: dict[str, Any] = dict.fromkeys(("rank", "role", "stage", "cpu", "gpu", "free", "disk", "note"), "")
        state, mood = ("no answer", "bad") if row["error"] else ("asking", "busy")
        if row["lan"] in seats:
            rank = seats.index(row["lan"])
            blank |= {"rank": rank, "role": "head" if rank == 0 else "worker"}
        return {**base, **blank, "state": state, "mood": mood}
    box, load = status["box"], status["load"]
    return {
        **base,
        "rank": "" if box["rank"] is None else box["rank"],
        "role": box["role"],
        "state": box["state"],
        "mood": "good" if box["state"] == "running" else "bad" if box["state"] == "refused" else "busy",
        "stage": next((one["label"] for one in status["stages"] if one["key"] == status["stage"]), status["stage"]),
        "cpu": "" if load["cpu"] is None else f"{100 * load['cpu']:.0f} %",
        "gpu": " · ".join(_gpu(one) for one in load["gpus"]) or "–",
        "free": show_size(status["memory"]["available"]) if status["memory"]["total"] else "",
        "disk": _disk(load["disks"]),
        "note": "; ".join(status["troubles"]) or (box["ended"] and f"before: {box['ended']}"),
    }


def _gpu(one: Mapping[str, Any]) -> str:
    parts = (
        ("temperature_c", "{:.0f} °C"),
        ("power_w", "{:.0f} W"),
        ("clock_mhz", "{:.0f} MHz"),
        ("busy_percent", "{:.0f} % busy"),
    )
    return ", ".join(form.format(one[name]) for name, form in parts if one[name] is not None) or one["name"]


def _disk(disks: Sequence[Mapping[str, Any]]) -> str:
    """The fullest file system that is written to."""
    real = [one for one in disks if one["total"]]
    if not real:
        return ""
    tightest = min(real, key=lambda one: one["free"])
    return f"{show_size(tightest['free'])} at {tightest['path']}"


def _alarms(boxes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**one, "box": row["status"]["service"]["hostname"] or row["lan"], "age": show_seconds(one["age_s"])}
        for row in boxes
        if row["status"]
        for one in row["status"]["alarms"]
    ]


def rows(boxes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Preflight's and the fabric check's rows of all boxes, worst first; the same row of several boxes is one line."""
    found: dict[tuple[str, ...], list[str]] = {}
    kept: dict[tuple[str, ...], Mapping[str, Any]] = {}
    asked = [row for row in boxes if row["status"] and row["status"]["rows"]]
    for row in asked:
        name = row["status"]["service"]["hostname"] or row["lan"]
        for one in row["status"]["rows"]:
            key = (one["level"], one["name"], one["seen"])
            kept[key] = one
            found.setdefault(key, []).append(name)
    everybody = len(asked)
    lines = [
        {**kept[key], "where": "all boxes" if len(names) == everybody > 1 else ", ".join(names)}
        for key, names in found.items()
    ]
    return sorted(lines, key=lambda one: ORDER.index(one["level"]))


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
