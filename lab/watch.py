"""What the boxes' pages say, and waiting until all serve: a line whenever a box moves, and a deadline."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.refusal import Refusal, Refusals
from core.units import show_seconds
from lab import processes, providers
from lab.state import Box, Lab

Say = Callable[[str], None]
POLL_S = 0.3
RESTARTS = 4  # so many are given to a kit before `up` gives up on it
# How the kit prints a Refusal.
TOLD = re.compile(r"^(?:glm53: |.* refused: )(.+?): seen (.*); expected (.*?)\. (.*)$", re.MULTILINE)


def status(lab: Lab, box: Box, timeout_s: float = 2.0) -> dict[str, Any] | None:
    """/status.json of one box; None when it does not answer within `timeout_s`."""
    answer = get(box.address, lab.status_port, "/status.json", timeout_s)
    if answer is None or answer[0] != 200:
        return None
    try:
        data = json.loads(answer[1])
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def get(host: str, port: int, path: str, timeout_s: float) -> tuple[int, bytes] | None:
    """(status, body) of a GET without any proxy; None when nothing answers in time."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@dataclass(frozen=True)
class Line:
    """One box in a few words."""

    box: Box
    healthy: bool
    text: str


def line(lab: Lab, box: Box) -> Line:
    """Where the box stands: from its page, else from its keeper."""
    kept = providers.of(lab).kept(box)
    page = status(lab, box) if kept.alive else None
    if page is None:
        return Line(box, False, "starting" if kept.state == "up" else kept.state)
    stage = next((stage for stage in page["stages"] if stage["key"] == page["stage"]), None)
    step = f": {stage['step']}" if stage and stage.get("step") else ""
    role = page["box"]["role"]
    return Line(box, bool(page["healthy"]), f"{role:<9} {page['stage']}{step}")


def until_all_healthy(lab: Lab, deadline_s: float, say: Say, started: float | None = None) -> float:
    """Seconds until every box's page says healthy. Raises what the boxes refuse, or Refusal past the deadline."""
    begin = time.monotonic() if started is None else started
    shown: dict[str, str] = {}
    while True:
        lines = [line(lab, box) for box in lab.boxes]
        for now in lines:
            text = f"{now.text}{' (healthy)' if now.healthy else ''}"
            if shown.get(now.box.name) != text:
                shown[now.box.name] = text
                say(f"  {show_seconds(time.monotonic() - begin):>6}  {now.box.name} {now.box.address:<13} {text}")
        if all(now.healthy for now in lines):
            return time.monotonic() - begin
        refused = [box for box in lab.boxes if providers.of(lab).kept(box).state == "refused"]
        if refused:  # the others may be about to say the same
            processes.wait_until(lambda: all(not providers.of(lab).kept(box).alive for box in lab.boxes), 2)
            raise refusals([box for box in lab.boxes if providers.of(lab).kept(box).state == "refused"])
        gone = [box for box in lab.boxes if providers.of(lab).kept(box).state in ("stopped", "keeper gone")]
        if gone:
            raise Refusal("lab", f"{gone[0].name} ended", "a box that serves", f"./glm53 lab logs {gone[0].name}")
        falling = [box for box in lab.boxes if providers.of(lab).kept(box).restarts > RESTARTS]
        if falling:
            words = (falling[0].path / "kit.log").read_text(errors="replace").strip().splitlines()
            seen = f"{falling[0].name} ended {RESTARTS + 1} times ({words[-1] if words else 'without a word'})"
            raise Refusal("lab", seen, "a kit that stays", f"./glm53 lab up --keep, lab logs {falling[0].name}")
        if time.monotonic() - begin > deadline_s:
            raise Refusal(
                "lab",
                f"not serving after {show_seconds(deadline_s)} ({'; '.join(f'{k}: {v}' for k, v in shown.items())})",
                "every box healthy before its deadline",
                "./glm53 lab logs box1",
            )
        time.sleep(POLL_S)


def refusals(boxes: Sequence[Box]) -> Refusals:
    """Why kits ended with status 2: their own last words, those of several boxes told once."""
    said: dict[Refusal, list[str]] = {}
    for box in boxes:
        text = (box.path / "kit.log").read_text(errors="replace")
        found = [Refusal(*match.groups()) for match in TOLD.finditer(text)]
        for refusal in found or [Refusal("exit status 2", text[-200:], "a start", f"./glm53 lab logs {box.name}")]:
            names = said.setdefault(refusal, [])
            if box.name not in names:
                names.append(box.name)
    return Refusals(
        tuple(Refusal(f"{', '.join(names)}: {r.setting}", r.seen, r.expected, r.cure) for r, names in said.items())
    )


def ask(lab: Lab, box: Box, question: str, deadline_s: float, tokens: int = 32) -> tuple[str, float]:
    """(answer, seconds) of one chat completion through a box's door. Raises Refusal for anything but 200."""
    key = lab.settings_of(box).get("API_KEY")
    body = {
        "model": lab.settings_of(box).get("SERVED_NAME", "glm53"),
        "messages": [{"role": "user", "content": question}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    connection = http.client.HTTPConnection(box.address, lab.api_port, timeout=deadline_s)
    started = time.monotonic()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        seen = f"{type(error).__name__}: {error}"
        raise Refusal("chat", seen, "an answer", f"./glm53 lab logs {box.name}") from None
    finally:
        connection.close()
    if answer.status != 200:
        seen = f"HTTP {answer.status} {text[:200].decode(errors='replace')}"
        raise Refusal("chat", seen, "HTTP 200", f"./glm53 lab logs {box.name}")
    content: str = json.loads(text)["choices"][0]["message"]["content"]
    return content, time.monotonic() - started
