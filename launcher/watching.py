"""What /status.json of all boxes says, as lines for a terminal, and when the watch ends. Pure.

A status is the page's own data (entrypoint/board.py); a box that does not answer has the error's text instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.units import show_seconds

# A group's refusal may be cured at another box while one watches; one that stays this long is an answer.
REFUSED_S = 5.0

Status = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """One box: its lan address, its status, or why there is none."""

    lan: str
    status: Status | None
    error: str = ""


def members(seen: Seen) -> list[str]:
    """The lan addresses a box names, itself among them once it knows."""
    if seen.status is None:
        return []
    named = [str(member.get("lan") or "") for member in _list(seen.status, "members")]
    return [lan for lan in dict.fromkeys([str(_part(seen.status, "box").get("lan") or ""), *named]) if lan]


def serving(boxes: list[Seen]) -> Seen | None:
    """The head, when it and every other box that is watched say they are healthy."""
    if not boxes or any(seen.status is None or not seen.status.get("healthy") for seen in boxes):
        return None
    return next((seen for seen in boxes if seen.status and _part(seen.status, "box").get("role") == "head"), None)


def refusals(boxes: list[Seen]) -> list[str]:
    """Each box's refusals as lines, once each."""
    lines = []
    for seen in boxes:
        for refusal in _list(seen.status or {}, "refusals"):
            text = f"{refusal.get('setting')}: seen {refusal.get('seen')}; expected {refusal.get('expected')}."
            lines.append(f"{seen.lan}  {text} {refusal.get('cure', '')}")
    return lines


def row(seen: Seen) -> str:
    """One box: address, host name, role and rank, its stage with time and deadline, what it is doing."""
    if seen.status is None:
        return f"{seen.lan:<15} {'-':<12} {'no answer':<14} {seen.error}"
    box, name = _part(seen.status, "box"), str(_part(seen.status, "service").get("hostname") or "-")
    role = str(box.get("role") or "undecided")
    who = f"{role} {box['rank']}" if box.get("rank") is not None else role
    return f"{seen.lan:<15} {name[:12]:<12} {who:<10} {_stage(seen.status)}"


def table(boxes: list[Seen], elapsed_s: float) -> list[str]:
    """All boxes with a headline."""
    answering = [seen for seen in boxes if seen.status is not None]
    healthy = sum(bool(seen.status and seen.status.get("healthy")) for seen in answering)
    lines = [f"glm53: {len(answering)} boxes seen, {healthy} healthy, watching for {show_seconds(elapsed_s)}"]
    lines += [f"  {row(seen)}" for seen in boxes]
    sentence = next((str(seen.status["sentence"]) for seen in answering if seen.status and _unwell(seen.status)), "")
    return [*lines, f"  {sentence}"] if sentence else lines


def stages(status: Status) -> list[str]:
    """The stage list of one box: what is done, what runs against which deadline, what waits."""
    marks = {"done": "ok", "running": "..", "failed": "!!", "waiting": "  "}
    lines = []
    for number, stage in enumerate(_list(status, "stages"), 1):
        state = str(stage.get("state", "waiting"))
        times = f"{show_seconds(float(stage.get('elapsed_s') or 0)):>7}" if state != "waiting" else " " * 7
        lines.append(f"    {marks.get(state, '??')} {number:>2} {stage.get('label', stage.get('key', '?')):<24}{times}")
    return lines


def event(seen: Seen) -> str:
    """What must change for a new line where the screen cannot be redrawn."""
    if seen.status is None:
        return "no answer"
    stage = _running(seen.status)
    parts = (stage.get("key"), stage.get("state"), stage.get("step"), _part(seen.status, "box").get("role"))
    return json.dumps([*parts, seen.status.get("healthy"), _list(seen.status, "refusals")])


def farewell(head: Seen, key: bool) -> list[str]:
    """Where to send requests, under which model name, and a line to try."""
    status = head.status or {}
    model = str(_part(status, "service").get("served_name") or "glm53")
    url = str(status.get("url") or f"http://{head.lan}:8002/v1").rstrip("/")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "What is 17 times 23?"}]})
    secret = ' -H "Authorization: Bearer $API_KEY"' if key else ""
    return [
        f"serving at {url}  (the same port of any box leads there)",
        f"model      {model}",
        f"try        curl -s {url}/chat/completions -H 'Content-Type: application/json'{secret} -d '{body}'",
    ]


def _stage(status: Status) -> str:
    found = _list(status, "stages")
    stage = _running(status)
    if not stage:
        return "healthy" if status.get("healthy") else "starting"
    number = next((index for index, item in enumerate(found, 1) if item.get("key") == stage.get("key")), 0)
    deadline = stage.get("deadline_s")
    times = show_seconds(float(stage.get("elapsed_s") or 0)) + (
        f" of {show_seconds(float(deadline))}" if deadline else ""
    )
    text = f"{number}/{len(found)} {stage.get('label') or stage.get('key')} {times}"
    step = str(stage.get("step") or stage.get("detail") or "")
    return ("healthy  " if status.get("healthy") else "") + text + (f"  {step}" if step else "")


def _running(status: Status) -> Mapping[str, Any]:
    found = _list(status, "stages")
    for state in ("failed", "running"):
        for stage in found:
            if stage.get("state") == state:
                return stage
    return next((stage for stage in found if stage.get("key") == status.get("stage")), {})


def _unwell(status: Status) -> bool:
    return not status.get("healthy") and bool(status.get("sentence"))


def _part(status: Status, name: str) -> Mapping[str, Any]:
    part = status.get(name)
    return part if isinstance(part, Mapping) else {}


def _list(status: Status, name: str) -> list[Mapping[str, Any]]:
    part = status.get(name)
    return [item for item in part if isinstance(item, Mapping)] if isinstance(part, list) else []
