"""One long prompt, greedy, several at once: how many different answers?

    python -m gate.repro.greedy_nondeterminism --url http://box:8002 [--runs 16] [--at-once 3] [--tokens 42000]

A batch changes the order of sums, so a few differences under load are arithmetic; many, or any with --at-once 1, are a
race.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter

from client.openai import Client, api_key
from client.reply import ClientError
from core.refusal import Refusal
from gate.right.determinism import first_difference
from gate.right.needle import line


async def run(options: argparse.Namespace) -> int:
    """Exit status: 0 only when there is one distinct answer."""
    async with Client(options.url, options.model, key=api_key(), read_s=900) as client:
        await client.served()
        draw = random.Random(1234)
        sample = "\n".join(line(number, draw) for number in range(100))
        per_line = (await client.tokenize(sample))["count"] / 100
        body = "\n".join(line(number, draw) for number in range(int(options.tokens / per_line)))
        chat = [{"role": "user", "content": f"{body}\n\nDescribe what the log shows."}]
        slots = asyncio.Semaphore(options.at_once)

        async def one() -> str:
            async with slots:
                reply = await client.chat(chat, max_tokens=48, temperature=0, seed=1234)
                return reply.reasoning + "|" + reply.text

        said = await asyncio.gather(*(one() for _ in range(options.runs)))
    counts = Counter(said)
    majority = counts.most_common(1)[0][0]
    print(f"{len(counts)} different answers in {len(said)} runs, {options.at_once} at once")
    for text, times in counts.most_common()[1:]:
        place = first_difference(majority, text)
        print(f"  {times} x from character {place}: {text[place : place + 40]!r} for {majority[place : place + 40]!r}")
    return int(len(counts) > 1)


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8002")
    parser.add_argument("--model", default="")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=42000)
    try:
        return asyncio.run(run(parser.parse_args()))
    except (ClientError, Refusal) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
