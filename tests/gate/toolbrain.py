"""The simulated server's tool calls."""

from __future__ import annotations

import json
from typing import Any

from tests.gate.brain import Answer


def answer(data: dict[str, Any], question: str, defect: str) -> Answer | None:
    """A call for the questions of smoketest and gate; None = answer in words."""
    names = [tool["function"]["name"] for tool in data["tools"]]
    if "tide_table" in names and "Stromness" in question:
        arguments = json.dumps({"harbour": "Stromness"})
        if defect == "tool_json":
            arguments = arguments[:-2]
        if defect == "tool_text":
            return Answer(text="<tool_call>tide_table</tool_call>")
        return Answer(calls=[("tide_table", arguments)])
    return None
