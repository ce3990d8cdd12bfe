"""The simulated server's tool calls: the tool cases, and agents' jobs turn by turn."""

from __future__ import annotations

import json
import re
from typing import Any

from gate.right import agent, tools
from tests.gate.brain import Answer


def answer(data: dict[str, Any], question: str, defect: str) -> Answer | None:
    """A call for the questions of smoketest and gate; None = answer in words."""
    names = [tool["function"]["name"] for tool in data["tools"]]
    if "tide_table" in names and "Stromness" in question:
        return _tide(defect)
    if "list_files" in names:
        return _job(data, question, defect)
    for case in tools.CASES:
        if case.question in question:
            arguments = json.dumps(case.arguments, ensure_ascii=False)
            if defect == "tools" and case.name == "long_path" and data.get("stream"):
                arguments = arguments.replace("northern-sector", "northern-sector-sector")
            return Answer(calls=[(case.call, arguments)])
    return None


def _tide(defect: str) -> Answer:
    arguments = json.dumps({"harbour": "Stromness"})
    if defect == "tool_json":
        arguments = arguments[:-2]
    if defect == "tool_text":
        return Answer(text="<tool_call>tide_table</tool_call>")
    return Answer(calls=[("tide_table", arguments)])


# job -> calls in order; a text is answered from what the last tool said, by the pattern
STEPS: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    "port": (("list_files", {}), ("read_file", {"path": "settings.ini"}), ("done", {"answer": r"port = (\d+)"})),
    "spelling": (
        ("read_file", {"path": "settings.ini"}),
        (
            "write_file",
            {"path": "settings.ini", "content": agent.TREE["settings.ini"].replace("intervall", "interval")},
        ),
        ("done", {"answer": "ok"}),
    ),
    "todos": (("find_text", {"text": "TODO"}), ("done", {"answer": "lines"})),
    "create": (("write_file", {"path": "docs/owner.txt", "content": "M. Isbister\n"}), ("done", {"answer": "ok"})),
    "read": (("read_file", {"path": "docs/history.txt"}), ("done", {"answer": r"spring of (\d+)"})),
}


def _job(data: dict[str, Any], question: str, defect: str) -> Answer:
    job = next(job for job in agent.JOBS if job.text in question)
    results = [message["content"] for message in data["messages"] if message["role"] == "tool"]
    name, arguments = STEPS[job.name][len(results)]
    arguments = dict(arguments)
    if name == "done":
        arguments["answer"] = _found(arguments["answer"], results[-1])
        if defect == "agent" and job.name == "todos":
            arguments["answer"] = "four"
    if defect == "agent_arguments" and name == "find_text" and len(results) == 0:
        arguments = {"words": "TODO"}
    return Answer(calls=[(name, json.dumps(arguments))])


def _found(pattern: str, said: str) -> str:
    if pattern == "lines":
        return str(len(said.splitlines()))
    match = re.search(pattern, said)
    return match[1] if match and match.groups() else pattern
