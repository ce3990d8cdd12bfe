"""What the repros share: the same request many times, how the answers differ, and a command line."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from client.access import api_key
from client.openai import Client
from client.reply import ClientError
from core.refusal import Refusal
from gate.right.determinism import first_difference

SEED = 1234
SHOWN = 40  # characters of a difference
# Builds the request for so many tokens of prompt; what it gives back asks once and returns what was said.
Prepare = Callable[[Client, int], Awaitable[Callable[[], Awaitable[str]]]]


def main(about: str, runs: int, at_once: int, tokens: int, prepare: Prepare) -> int:
    """Parse the command line, ask, report. Exit status: 1 when answers differ, 2 when nothing could be asked."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8002")
    parser.add_argument("--model", default="")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--at-once", type=int, default=at_once)
    parser.add_argument("--tokens", type=int, default=tokens)
    options = parser.parse_args()
    if min(options.runs, options.at_once, options.tokens) < 1:
        parser.error("--runs, --at-once and --tokens are 1 or more")
    try:
        said = asyncio.run(_ask(options, prepare))
    except (ClientError, Refusal) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print("\n".join(report(said)))
    return int(len(set(said)) > 1)


async def _ask(options: argparse.Namespace, prepare: Prepare) -> list[str]:
    async with Client(options.url, options.model, key=api_key(), read_s=900) as client:
        await client.served()
        once = await prepare(client, options.tokens)
        slots = asyncio.Semaphore(options.at_once)

        async def run(number: int) -> str:
            async with slots:
                said = await once()
                print(f"run {number + 1} of {options.runs} done", file=sys.stderr)
                return said

        return list(await asyncio.gather(*(run(number) for number in range(options.runs))))


def report(said: Sequence[str]) -> list[str]:
    """How many differ from the most frequent answer, then a line for each other answer. Pure."""
    (majority, most), *others = Counter(said).most_common()
    lines = [f"{len(said) - most} of {len(said)} runs diverge from the majority; {len(others) + 1} different answers"]
    for text, times in others:
        at = first_difference(majority, text)
        here, usual = text[at : at + SHOWN], majority[at : at + SHOWN]
        lines.append(f"  {times} x from character {at}: {here!r} for {usual!r}")
    return lines
