"""Start simulated servers, and run the gate's checks against them at sizes a test can afford."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from client.openai import Client
from gate import runner
from gate.check import Check, Result
from gate.progress import Progress
from gate.session import Session

ROOT = Path(__file__).resolve().parents[2]

# sizes at which every check still means what it means, in seconds instead of minutes
SMALL: dict[str, dict[str, Any]] = {
    "max_tokens": {"budgets": [1, 5]},
    "reasoning": {"prompts": 1, "tokens": 1000},
    "count": {"runs": 1},
    "image": {"cells": 2},
    "scripts": {"runs": 1, "tokens": 200},
    "prefix": {"tokens": 3000, "rounds": 1},
    "determinism": {"tokens": 1000, "runs": 8, "at_once": 4},
    "longreply": {"replies": 1, "tokens": 1400, "window": 350, "least": 1000},
    "needle": {"lengths": [3000], "depths": [0.1, 0.9]},
    "short": {"prompt": 60000, "alone": 2, "every_s": 0.25, "stream_tokens": 6000},
    "three": {"prompt": 20000, "every_s": 0.25},
    "newcomer": {"streams": 4, "tokens": 3000, "rounds": 1, "settle_s": 1.0},
    "speed": {"workloads": ["code", "counting", "mixed4"], "runs": 3, "batches": 2, "warmup": 1, "tokens": 96},
    "prefill": {"sizes": [2000], "rounds": 2},
    "depth": {"depths": [0, 4000], "tokens": 64, "rounds": 1},
    "sweep": {"widths": [1, 2, 4, 8], "rounds": 1, "tokens": 64},
    "soak": {"seconds": 0, "least_rounds": 16, "streams": 2, "tokens": 48},
}
# a server with times that make every check decide
# (and slow enough that neither the machine nor the client is what is measured)
USUAL: dict[str, Any] = {"ttft_s": 0.005, "gap_s": 0.012, "burst": 8, "prefill_rate": 40000}


@contextmanager
def simulator(**how: Any) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gate.simulated", json.dumps(how)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


@asynccontextmanager
async def simulator_async(**how: Any) -> AsyncIterator[str]:
    """The same without blocking others of the loop."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gate.simulated", json.dumps(how), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()


def record(base: str) -> list[dict[str, Any]]:
    """What the server says it sent."""
    with urllib.request.urlopen(f"{base}/record", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


async def gate(
    base: str,
    checks: Sequence[Check],
    *,
    out: Path | None = None,
    sizes: Mapping[str, Mapping[str, Any]] = SMALL,
    size: str = "quick",
    **session: Any,
) -> list[Result]:
    """Results of some checks against a server."""
    async with Client(base, "glm53", read_s=60) as client:
        made = Session(client, Progress(quiet=True), out, **session)
        await made.open()
        return await runner.run(made, checks, size, sizes)


def excused(results: Sequence[Result]) -> bool:
    """Did the client wake up late, so that a time could not be judged? Then the machine is busy: measure again."""
    reasons = [result.outcome.reason for result in results if result.outcome.verdict == "inconclusive"]
    return any("late" in reason for reason in reasons)


def reds(results: Sequence[Result]) -> set[str]:
    """Names of failed checks."""
    return {result.check for result in results if result.outcome.verdict == "fail"}
