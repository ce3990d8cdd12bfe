"""Tool calls, streamed and not: the shapes that broke parsers elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gate.check import Check, Outcome, judged
from gate.session import GREEDY, OFF, Scope


def tool(name: str, description: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """A function tool in the protocol's shape."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TEXT = {"type": "string"}
LONG_PATH = (
    "/srv/archive/harbour-office/1987/logs/tide-gauges/northern-sector/quay-14/channel-b/raw/readings-final-v2.csv"
)
TOOLS = [
    tool("ring_bell", "Ring the harbour bell once. Takes no arguments."),
    tool("open_file", "Open a file by its absolute path.", ("path",), path=TEXT),
    tool(
        "book_berth",
        "Book a berth for a vessel.",
        ("vessel", "stay"),
        vessel={"type": "object", "properties": {"name": TEXT, "length_m": {"type": "number"}}},
        stay={
            "type": "object",
            "properties": {"nights": {"type": "integer"}, "extras": {"type": "array", "items": TEXT}},
        },
    ),
    tool("send_note", "Send a note to a person.", ("to", "text"), to=TEXT, text=TEXT),
]


@dataclass(frozen=True)
class Case:
    """A question, the call it must lead to, and whether the model may think at length first."""

    name: str
    question: str
    call: str
    arguments: dict[str, Any]
    thinking: bool = False


CASES = (
    Case("no_arguments", "Ring the harbour bell now.", "ring_bell", {}),
    Case("long_path", f"Open the file {LONG_PATH} for me.", "open_file", {"path": LONG_PATH}),
    Case(
        "nested",
        "Book a berth for the vessel Sula, 11.5 metres long, for 3 nights, extras exactly: water, power.",
        "book_berth",
        {"vessel": {"name": "Sula", "length_m": 11.5}, "stay": {"nights": 3, "extras": ["water", "power"]}},
    ),
    Case("after_thinking", "Think about it first, then ring the harbour bell.", "ring_bell", {}, thinking=True),
    Case(
        "quotes",
        'Send a note to Åsa with exactly this text: He said "mind the <gap>" & left.',
        "send_note",
        {"to": "Åsa", "text": 'He said "mind the <gap>" & left.'},
    ),
)


def wrong(case: Case, row: dict[str, Any]) -> str | None:
    """What is wrong with the answer, or None. Values are compared loosely in case and outer space, keys exactly."""
    calls = row["tool_calls"]
    if len(calls) != 1:
        return f"{len(calls)} calls instead of one (text {row['text'][:60]!r})"
    if calls[0]["name"] != case.call:
        return f"called {calls[0]['name']!r} instead of {case.call}"
    try:
        arguments = json.loads(calls[0]["arguments"] or "{}")
    except ValueError:
        return f"arguments are no JSON: {calls[0]['arguments'][:120]!r}"
    if _plain(arguments) != _plain(case.arguments):
        return f"arguments {calls[0]['arguments'][:160]}"
    if row["finish"] != "tool_calls":
        return f"finish reason {row['finish']!r}"
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return float(value) if isinstance(value, int | float) else str(value).strip().rstrip(".").lower()


async def run(scope: Scope) -> Outcome:
    """Each case streamed and not, `runs` times."""
    right, total, first = 0, 0, ""
    by_kind = {"streamed": 0, "whole": 0}
    for number in range(scope["runs"]):
        for case in CASES:
            for kind in by_kind:
                options: dict[str, Any] = {
                    "max_tokens": scope.budget(2048),
                    "tools": TOOLS,
                    "tool_choice": "auto",
                    **GREEDY,
                }
                options |= {} if case.thinking else OFF
                prompt = f"[{scope.tag(number, case.name)}] {case.question}"
                row = await scope.ask(f"{number}/{case.name}/{kind}", prompt, stream=kind == "streamed", **options)
                bad = wrong(case, row)
                total += 1
                right += bad is None
                by_kind[kind] += bad is None
                first = first or (f"{case.name}, {kind}: {bad}" if bad else "")
                scope.note(f"{right} of {total} right")
    return judged(right, total, "calls right", first, **by_kind)


CHECK = Check(
    name="tools",
    room="right",
    title="Tool calls",
    bar="every call has the right name and arguments, streamed and not",
    why="Reported: malformed and truncated calls when streaming with drafts, and calls swallowed inside reasoning.",
    run=run,
    quick={"runs": 1},
    full={"runs": 4},
)
