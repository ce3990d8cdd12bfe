"""What clients and pages see while a generation ends: errors or answers, never a hang; and at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import httpx

from tests.stays_up.kits.boxes import ask, kits, ranks, serving, until

CLIENTS = 50


async def stream(client: httpx.AsyncClient, url: str, tokens: int) -> str:
    """ "whole", or how it ended: a status, or the transport's error."""
    body = {"model": "glm53", "messages": [], "stream": True, "max_tokens": tokens, "pause_s": 0.05}
    try:
        async with client.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return str(answer.status_code)
            lines = [line async for line in answer.aiter_lines() if line]
            return "whole" if lines and lines[-1] == "data: [DONE]" else "cut"
    except httpx.HTTPError as error:
        return type(error).__name__


def test_fifty_streams_through_a_restart_end_with_answers_or_errors(tmp_path: Path) -> None:
    with kits(tmp_path, 2, MODEL_WAIT_S="120") as made:
        until(lambda: serving(made) != "", made, 120)
        first = serving(made)
        url = f"http://{made[1].lan}:8002/v1/chat/completions"
        (victim,) = ranks(made[1])

        async def load() -> list[str]:
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(trust_env=False, timeout=150, limits=limits) as client:
                early = [asyncio.create_task(stream(client, url, 400)) for _ in range(CLIENTS // 2)]
                await asyncio.sleep(2)
                os.kill(victim, signal.SIGKILL)
                await asyncio.sleep(1)
                late = [asyncio.create_task(stream(client, url, 5)) for _ in range(CLIENTS // 2)]
                async with asyncio.timeout(150):
                    return await asyncio.gather(*early, *late)

        ends = asyncio.run(load())
        until(lambda: serving(made) not in ("", first), made, 120)
        print({end: ends.count(end) for end in sorted(set(ends))})
        assert ends[CLIENTS // 2 :] == ["whole"] * (CLIENTS // 2)  # held by the door until the next generation
        assert set(ends[: CLIENTS // 2]) <= {"whole", "cut", "RemoteProtocolError", "ReadError", "500", "503"}
        assert ask(made[0]) == "2 2"


def test_a_gone_process_is_on_every_page_in_five_seconds(tmp_path: Path) -> None:
    with kits(tmp_path, 2) as made:
        for victim in ("engine", "kit"):
            until(lambda: serving(made) != "", made, 120)
            assert made[1].process is not None
            os.kill(ranks(made[1])[0] if victim == "engine" else made[1].process.pid, signal.SIGKILL)
            began = time.monotonic()
            until(lambda: not made[0].status()["healthy"] and not made[1].status().get("healthy"), made, 5)
            print(f"{victim}: on every page after {time.monotonic() - began:.1f} s")
            if victim == "kit":
                made[1].start()
