"""Small jobs over many turns with tools, in a tree that lives in memory: what agents do all day."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gate.check import Check, Outcome, judged
from gate.right.tools import TEXT, tool
from gate.session import GREEDY, Scope

TOOLS = [
    tool("list_files", "List the paths of all files."),
    tool("read_file", "Read a file.", ("path",), path=TEXT),
    tool("find_text", "List the lines of all files that hold a text, as path:number:line.", ("text",), text=TEXT),
    tool("write_file", "Write a whole file, new or existing.", ("path", "content"), path=TEXT, content=TEXT),
    tool(
        "done",
        "Finish the job. Put the answer in `answer`, or 'ok' when the job was to change files.",
        ("answer",),
        answer=TEXT,
    ),
]
SYSTEM = (
    "You work on a tree of files through the tools, one call at a time. Look before you change anything. "
    "When the job is finished call done."
)
REJECTED = "_rejected_by_server"  # the key a fail-closed parser puts into a call it refuses
TURNS = 12
TREE = {
    "README.txt": "Gauge reader. Settings are in settings.ini, code in src.\n",
    "settings.ini": "[gauge]\nname = quay-14\nport = 7431\nintervall = 30\n",
    "src/main.py": "import store\n\n# TODO: handle a missing gauge\ndef read():\n    return store.load()\n",
    "src/store.py": "# TODO: rotate old files\n# TODO: check the disk\ndef load():\n    return []\n",
    "docs/history.txt": "The gauge was set up by M. Isbister in the spring of 1987.\n",
}


@dataclass
class Desk:
    """The tree as the model leaves it, and what it did."""

    files: dict[str, str] = field(default_factory=lambda: dict(TREE))
    answer: str | None = None
    unknown: int = 0
    bad: int = 0
    refused: int = 0

    def call(self, name: str, text: str) -> str:
        """Do one call; the reply is what the model reads next."""
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            self.bad += 1
            return "error: the arguments are no JSON"
        if not isinstance(arguments, dict):
            self.bad += 1
            return "error: the arguments are no object"
        if REJECTED in arguments:
            self.refused += 1
            return f"error: {arguments[REJECTED]}"
        needed = {entry["function"]["name"]: entry["function"]["parameters"]["required"] for entry in TOOLS}
        if name not in needed:
            self.unknown += 1
            return f"error: there is no tool {name}"
        if any(not isinstance(arguments.get(key), str) for key in needed[name]):
            self.bad += 1
            return f"error: {name} needs {', '.join(needed[name])}"
        return self._do(name, {key: str(value) for key, value in arguments.items()})

    def _do(self, name: str, arguments: dict[str, str]) -> str:
        if name == "list_files":
            return "\n".join(sorted(self.files))
        if name == "find_text":
            lines = [
                f"{path}:{number}:{text}"
                for path, content in sorted(self.files.items())
                for number, text in enumerate(content.splitlines(), start=1)
                if arguments["text"] in text
            ]
            return "\n".join(lines) or "nothing found"
        if name == "done":
            self.answer = arguments["answer"]
            return "ok"
        path = arguments["path"].removeprefix("./").removeprefix("/")
        if name == "write_file":
            self.files[path] = arguments["content"]
            return "written"
        return self.files.get(path, f"error: there is no file {path}")


@dataclass(frozen=True)
class Job:
    """A job and how to tell that it is done."""

    name: str
    text: str
    good: Callable[[Desk], bool]


JOBS = (
    Job("port", "Which port does the gauge use? Answer with the number.", lambda desk: "7431" in (desk.answer or "")),
    Job(
        "spelling",
        "In settings.ini the key 'intervall' is misspelt: it should be 'interval'. Correct it and change nothing else.",
        lambda desk: (
            desk.files["settings.ini"].strip() == TREE["settings.ini"].replace("intervall", "interval").strip()
        ),
    ),
    Job(
        "todos",
        "How many lines in the tree hold the word TODO? Answer with the number.",
        lambda desk: "3" in (desk.answer or ""),
    ),
    Job(
        "create",
        "Make a file docs/owner.txt whose only line is: M. Isbister",
        lambda desk: desk.files.get("docs/owner.txt", "").strip() == "M. Isbister",
    ),
    Job(
        "read", "In which year was the gauge set up? Answer with the year.", lambda desk: "1987" in (desk.answer or "")
    ),
)


def diversity(text: str) -> float:
    """Share of distinct words among the last 200: word salad that repeats itself comes near 0."""
    words = text.split()[-200:]
    return len(Counter(words)) / len(words) if len(words) >= 50 else 1.0


async def run(scope: Scope) -> Outcome:
    """Every job, streamed and not."""
    right, total, first = 0, 0, ""
    sums = {"bad_arguments": 0, "unknown_tools": 0, "refused_calls": 0, "turns": 0}
    lowest = 1.0
    for number in range(scope["rounds"]):
        for job in JOBS:
            for stream in (True, False):
                key = f"{number}/{job.name}/{'streamed' if stream else 'whole'}"
                row = await scope.once(key, lambda job=job, stream=stream, n=number: _job(scope, job, stream, n))  # type: ignore[misc]
                total += 1
                right += row["good"]
                first = first or ("" if row["good"] else f"{key}: {row['why']}")
                lowest = min(lowest, row["diversity"])
                for name in sums:
                    sums[name] += row[name]
                scope.note(f"{right} of {total} done, {sums['turns']} turns")
    outcome = judged(right, total, "jobs done", first, lowest_diversity=round(lowest, 3), **sums)
    if outcome.verdict == "pass" and sums["bad_arguments"]:
        return Outcome("fail", f"all jobs done, but {sums['bad_arguments']} calls had bad arguments", outcome.figures)
    return outcome


async def _job(scope: Scope, job: Job, stream: bool, number: int) -> dict[str, Any]:
    desk = Desk()
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"[{scope.tag(number, job.name, stream)}] {job.text}"},
    ]
    turns, said = 0, ""
    while turns < TURNS and desk.answer is None:
        turns += 1
        reply = await scope.client.chat(
            chat,
            stream=stream,
            max_tokens=scope.budget(2048),
            tools=TOOLS,
            tool_choice="auto",
            reasoning_effort="low",
            **GREEDY,
        )
        said += " " + reply.reasoning + " " + reply.text
        if not reply.tool_calls:
            break
        calls = [
            {
                "id": call.id or f"c{turns}.{n}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for n, call in enumerate(reply.tool_calls)
        ]
        chat.append({"role": "assistant", "content": reply.text or None, "tool_calls": calls})
        for entry, call in zip(calls, reply.tool_calls, strict=True):
            chat.append({"role": "tool", "tool_call_id": entry["id"], "content": desk.call(call.name, call.arguments)})
    good = desk.answer is not None and job.good(desk)
    why = (
        ""
        if good
        else f"answer {desk.answer!r} after {turns} turns"
        if desk.answer is not None
        else f"not finished in {turns} turns"
    )
    return {
        "good": good,
        "why": why,
        "turns": turns,
        "bad_arguments": desk.bad,
        "unknown_tools": desk.unknown,
        "refused_calls": desk.refused,
        "diversity": round(diversity(said), 3),
        "chat": chat[2:],
    }


CHECK = Check(
    name="agent",
    room="right",
    title="Small jobs over many turns",
    bar="every job is done, streamed and not, and no call has bad arguments",
    why="Reported: word salad and broken calls that only show after several turns with tools.",
    run=run,
    quick={"rounds": 1},
    full={"rounds": 2},
)
