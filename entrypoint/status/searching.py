"""Ask the search worker: one process a question, few at a time, killed when its time is over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2
WAIT_S = 5.0
LONGEST_ANSWER = 8 * 1024**2


class SearchFailed(Exception):
    """No answer; the text says why."""


_slots = asyncio.Semaphore(AT_ONCE)


async def ask_worker(question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The worker's answer within `seconds`. Raises SearchFailed: out of time, too many, or what the worker says."""
    try:
        async with asyncio.timeout(WAIT_S):
            await _slots.acquire()
    except TimeoutError:
        raise SearchFailed(f"{AT_ONCE} searches run already: try again in a moment") from None
    try:
        text = await _run(json.dumps({**question, "seconds": seconds}).encode(), seconds)
    finally:
        _slots.release()
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        raise SearchFailed(f"nothing within {seconds:g} s: a smaller folder or a simpler pattern") from None
    if "error" in answer:
        raise SearchFailed(str(answer["error"]))
    return answer


async def _run(question: bytes, seconds: float) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-m", "entrypoint.status.search_worker"),
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds + 1):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(question)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await process.stdin.drain()
            process.stdin.close()
            answer = bytearray()
            while block := await process.stdout.read(1 << 16):
                answer += block
                if len(answer) > LONGEST_ANSWER:
                    return b""
            return bytes(answer)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()
