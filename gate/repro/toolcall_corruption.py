"""A long agent transcript with many tools, asked again and again: does the same call come back every time?

    python -m gate.repro.toolcall_corruption --url http://box:8002 [--runs 40] [--at-once 1] [--tokens 42000]

Reported elsewhere: 10 of 40 runs diverged at 42,272 tokens with 47 tools, while two smaller variants were bit-stable;
so the size is the point. Seeded: the transcript is the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

from client.openai import Client, api_key
from client.reply import ClientError
from core.refusal import Refusal
from gate.right.determinism import first_difference
from gate.right.needle import line
from gate.right.tools import TEXT, tool

SEED = 1234
TOOLS, CALLS = 47, 24


def tools() -> list[dict[str, Any]]:
    """47 tools of a harbour office, the same every time."""
    places = (
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
    )
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


async def run(options: argparse.Namespace) -> int:
    """Exit status: 1 when any run diverges from the majority."""
    async with Client(options.url, options.model, key=api_key(), read_s=900) as client:
        await client.served()
        chat = await sized(client, options.tokens)
        slots = asyncio.Semaphore(options.at_once)

        async def one(number: int) -> str:
            async with slots:
                reply = await client.chat(
                    chat, tools=tools(), max_tokens=40, temperature=0, seed=SEED, logprobs=True,
                    chat_template_kwargs={"enable_thinking": False},
                )  # fmt: skip
                print(f"run {number + 1}: {reply.usage.prompt if reply.usage else '?'} prompt tokens", file=sys.stderr)
                return "".join(token for token, _ in reply.logprobs) or reply.text + json.dumps(
                    [[call.name, call.arguments] for call in reply.tool_calls]
                )

        said = await asyncio.gather(*(one(number) for number in range(options.runs)))
    counts = Counter(said)
    majority, most = counts.most_common(1)[0]
    print(f"{len(said) - most} of {len(said)} runs diverge from the majority")
    for text, times in counts.items():
        if text != majority:
            place = first_difference(majority, text)
            print(
                f"  {times} x from character {place}: {text[place : place + 40]!r} for {majority[place : place + 40]!r}"
            )
    return int(most != len(said))


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8002")
    parser.add_argument("--model", default="")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=42272)
    try:
        return asyncio.run(run(parser.parse_args()))
    except (ClientError, Refusal) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
