"""The boots of all boxes on one time line. Ages are what boxes tell, so their clocks need not agree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.units import show_seconds
from entrypoint.status.plots import Stretch, lane

LAST = "watch"  # serving is no part of the boot: its lane would squeeze all others
APART_S = 5.0  # stages that ended so long before the rest belong to an earlier generation
LEAST_S = 5.0


def timeline(boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One lane a box, all on the same axis; `span`: its length as text, `live`: a boot is under way."""
    stretches = {row["lan"]: _stretches(row["status"], row["age_s"] or 0.0) for row in boxes if row["status"]}
    every = [one for found in stretches.values() for one in found]
    if not every:
        return {"lanes": [], "span": "", "live": False}
    left, right = min(one.start for one in every), max(one.end for one in every)
    span = max(LEAST_S, right - left)
    lanes = []
    for row in boxes:
        status = row["status"]
        moved = [
            Stretch(one.start - left, one.end - left, one.kind, one.title) for one in stretches.get(row["lan"], ())
        ]
        name = row["name"]
        lanes.append(
            {
                "name": name or row["lan"],
                "url": row["url"],
                "svg": lane(moved, span, f"{name or row['lan']}: " + "; ".join(one.title for one in moved)),
                **_now(status),
            }
        )
    live = any(row["status"] and row["status"]["stage"] != LAST for row in boxes)
    return {"lanes": lanes, "span": show_seconds(span), "live": live}


def _stretches(status: Mapping[str, Any], age_s: float) -> list[Stretch]:
    """The stages as stretches that end at 0 (now) or before; only the youngest unbroken run of them."""
    found: list[Stretch] = []
    for stage in status["stages"]:
        if stage["began_s"] is None or stage["elapsed_s"] is None or stage["key"] == LAST:
            continue
        start = -stage["began_s"] - age_s
        end = 0.0 if stage["state"] == "running" else start + stage["elapsed_s"]
        if found and start - found[-1].end > APART_S:
            found = []
        title = f"{stage['label']} {show_seconds(stage['elapsed_s'])}"
        found.append(Stretch(start, end, f"{stage['state']} s-{stage['key']}", title))
    return found


def _now(status: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the box does now: stage, time, deadline, phase and share."""
    if status is None:
        return {"stage": "no answer", "time": "", "share": None, "phase": "", "late": False}
    stage = next((one for one in status["stages"] if one["key"] == status["stage"]), None)
    if stage is None:
        return {"stage": status["stage"], "time": "", "share": None, "phase": "", "late": False}
    elapsed, deadline = stage["elapsed_s"], stage["deadline_s"]
    time = show_seconds(elapsed) if elapsed is not None else ""
    late = bool(elapsed is not None and deadline and elapsed > deadline)
    return {
        "stage": stage["label"],
        "time": f"{time} of {show_seconds(deadline)}" if time and deadline else time,
        "share": None if stage["share"] is None else round(100 * stage["share"]),
        "phase": stage["phase"],
        "late": late,
    }
