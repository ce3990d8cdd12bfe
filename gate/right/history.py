"""A history whose earlier tool call has arguments that are no JSON: agents keep such turns and go on."""

from __future__ import annotations

from typing import Any

from client.reply import ClientError
from gate.check import Check, Outcome, judged
from gate.right.tools import TOOLS
from gate.session import GREEDY, OFF, Scope

BROKEN = ('{"path": "/srv/log', "", "not json at all", '{"path": }', "[1, 2", '"just a string"')


def turns(arguments: str, tag: str) -> list[dict[str, Any]]:
    """A conversation in which the broken call was answered with an error, as an agent does it."""
    call = {"id": "call_1", "type": "function", "function": {"name": "open_file", "arguments": arguments}}
    return [
        {"role": "user", "content": f"[{tag}] Open the log, please."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "error: the arguments were not valid JSON"},
        {"role": "user", "content": "Never mind the file. Work out 27 times 14. Answer with the number only."},
    ]


async def run(scope: Scope) -> Outcome:
    """Each broken form must lead to an answer, and to the right one."""
    right, first = 0, ""
    for arguments in BROKEN:
        try:
            row = await scope.ask(
                arguments,
                turns(arguments, scope.tag(arguments)),
                stream=False,
                max_tokens=scope.budget(1024),
                tools=TOOLS,
                **GREEDY,
                **OFF,
            )
            bad = "" if "378" in row["text"] else f"answered {row['text'][:60]!r}"
        except ClientError as error:
            if error.status is None:
                raise
            bad = error.line
        right += not bad
        first = first or (f"arguments {arguments!r}: {bad}" if bad else "")
        scope.note(f"{right} right")
    return judged(right, len(BROKEN), "histories answered", first)


CHECK = Check(
    name="history",
    room="right",
    title="Broken calls in the history",
    bar="a history with arguments that are no JSON is answered, and rightly",
    why="One bad call must not end a conversation: the next request carries it again, and the next.",
    run=run,
    quick={"forms": len(BROKEN)},
    full={"forms": len(BROKEN)},
)
