"""One long prompt, greedy, several at once: how many different answers?

    python -m gate.repro.greedy_nondeterminism --url http://box:8002 [--runs 16] [--at-once 3] [--tokens 42000]

A batch changes the order of sums, so a few differences under load are arithmetic; many, or any with --at-once 1, are a
race.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable

from client.openai import Client
from gate.repro.asking import SEED, main
from gate.right.needle import line


async def prepare(client: Client, tokens: int) -> Callable[[], Awaitable[str]]:
    """One prompt of about `tokens` tokens: a log to describe."""
    draw = random.Random(SEED)
    sample = "\n".join(line(number, draw) for number in range(100))
    per_line = (await client.tokenize(sample))["count"] / 100
    body = "\n".join(line(number, draw) for number in range(max(1, int(tokens / per_line))))
    chat = [{"role": "user", "content": f"{body}\n\nDescribe what the log shows."}]

    async def once() -> str:
        reply = await client.chat(chat, max_tokens=48, temperature=0, seed=SEED)
        return reply.reasoning + "|" + reply.text

    return once


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", runs=16, at_once=3, tokens=42000, prepare=prepare))
