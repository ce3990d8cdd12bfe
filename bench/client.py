"""What the OpenAI client itself costs: N streams at a given rate against the simulated server, as CPU share of a core.

    python -m bench.client [--streams 64] [--rate 20] [--seconds 20]

The bar of the issue: 64 streams at 20 tokens/s cost the client under 20 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time

from client.openai import Client
from client.reply import Reply
from tests.gate.harness import simulator_async

BAR = 0.20


def cpu_s() -> float:
    """User and system seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(streams: int, rate: float, seconds: float) -> dict[str, float]:
    """Run the streams; the first second (connections, imports) is not counted."""
    tokens = int(rate * (seconds + 2))
    async with simulator_async(gap_s=1 / rate, gap_jitter=0.2) as base, Client(base, "glm53") as client:

        async def one(number: int) -> Reply:
            await asyncio.sleep(number / streams / rate)  # spread over one gap, as real streams are
            chat = [{"role": "user", "content": f"[{number}] Tell me about the harbour."}]
            return await client.chat(chat, max_tokens=tokens)

        tasks = [asyncio.create_task(one(number)) for number in range(streams)]
        await asyncio.sleep(1.0)
        started, used = time.perf_counter(), cpu_s()
        await asyncio.sleep(seconds)
        share = (cpu_s() - used) / (time.perf_counter() - started)
        replies = await asyncio.gather(*tasks)
    events = sum(len(reply.events) for reply in replies)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "streams": streams,
        "rate": rate,
        "cpu_share": round(share, 4),
        "events": events,
        "peak_rss_mib": round(peak, 1),
    }


def main() -> int:
    """Exit status 1 when the share is over the bar."""
    parser = argparse.ArgumentParser(description="CPU cost of the OpenAI client.")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rate", type=float, default=20.0, help="tokens per second of each stream")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    found = asyncio.run(measure(options.streams, options.rate, options.seconds))
    print(json.dumps({**found, "bar": BAR}))
    return int(found["cpu_share"] > BAR)


if __name__ == "__main__":
    raise SystemExit(main())
