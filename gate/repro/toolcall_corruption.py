"""A long agent transcript with many tools, asked again and again: does the same call come back every time?

    python -m gate.repro.toolcall_corruption --url http://box:8002 [--runs 40] [--at-once 1] [--tokens 42000]

Reported elsewhere: 10 of 40 runs diverged at 42,272 tokens with 47 tools, while two smaller variants were bit-stable;
so the size is the point. Seeded: the transcript is the same on every machine.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from client.openai import Client
from gate.repro.asking import SEED, main
from gate.right.needle import line
from gate.right.tools import TEXT, tool

TOOLS, CALLS = 47, 24


def tools() -> list[dict[str, Any]]:
    """47 tools of a harbour office, the same every time."""
    places = [
        "berth",
        "tide",
        "crane",
        "ferry",
        "lock",
        "pilot",
        "fuel",
        "customs",
        "weather",
        "cargo",
        "radio",
        "light",
    ]
    verbs = ("read", "list", "set", "check")
    names = [f"{verb}_{place}" for place in places for verb in verbs][:TOOLS]
    return [tool(name, f"{name.replace('_', ' ')} of a quay", ("quay",), quay=TEXT, note=TEXT) for name in names]


def transcript(lines_per_result: int) -> list[dict[str, Any]]:
    """24 pairs of call and result, then a question that leads to one more call."""
    draw = random.Random(SEED)
    names = [entry["function"]["name"] for entry in tools()]
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "Go round all quays and tell me where something is wrong."}
    ]
    for number in range(CALLS):
        arguments = json.dumps({"quay": f"quay-{number + 1}", "note": f"round {draw.randrange(1000)}"})
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": draw.choice(names), "arguments": arguments},
        }
        chat.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = "\n".join(line(place, draw) for place in range(lines_per_result))
        chat.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    chat.append({"role": "user", "content": "Now read the tide of quay-25 with the note 'last one'."})
    return chat


async def sized(client: Client, tokens: int) -> list[dict[str, Any]]:
    """The transcript whose prompt comes nearest to `tokens`."""
    few, many = 1, 4
    offered = tools()

    async def count(lines: int) -> int:
        return int((await client.tokenize(messages=transcript(lines), tools=offered))["count"])

    small, large = await count(few), await count(many)
    per_line = (large - small) / (many - few)
    return transcript(max(1, few + round((tokens - small) / per_line)))


async def prepare(client: Client, tokens: int) -> Callable[[], Awaitable[str]]:
    """The transcript, and a way to ask for its next call; what was said is told token by token."""
    chat = await sized(client, tokens)

    async def once() -> str:
        reply = await client.chat(
            chat, tools=tools(), max_tokens=40, temperature=0, seed=SEED, logprobs=True,
            chat_template_kwargs={"enable_thinking": False},
        )  # fmt: skip
        calls = json.dumps([[call.name, call.arguments] for call in reply.tool_calls])
        return "".join(token for token, _ in reply.logprobs) or reply.text + calls

    return once


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", runs=40, at_once=1, tokens=42272, prepare=prepare))
