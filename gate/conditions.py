"""Under what conditions a figure was measured. A cold figure is kept, marked, and never compared:
kernels that were still being compiled, weights written in this boot rather than read, clocks that somebody locked.

`judge` is pure; `Watch` gathers what it needs from the kit's page, an engine log and nvidia-smi, where present.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

COMPILES = re.compile(
    r"torch\.compile takes|compiling a graph|compil(?:e|ed|ing) (?:kernel|module|cubin)|ninja: |"
    r"building (?:cuda )?extension|"
    r"jit compil|autotun(?:e|ing)|loading extension module|cute.*compil",
    re.IGNORECASE,
)
SNAPSHOT = re.compile(
    r"snapshot\S* (?:was )?(?:written|saved|stored)|wrote (?:the |a )?(?:weight )?snapshot", re.IGNORECASE
)
LOCKED = "clocks_event_reasons.applications_clocks_setting"
TAIL_BYTES = 64 * 1024 * 1024


def judge(new_lines: Sequence[str], boot_lines: Sequence[str], clocks: str, noted: Sequence[str] = ()) -> list[str]:
    """The reasons why a run is cold; empty when none is known.

    new_lines   engine log written while the run was measured; boot_lines: all of this boot
    clocks      answer of nvidia-smi to LOCKED, empty where unknown; noted: reasons the user gave
    """
    reasons = list(noted)
    compiled = [line for line in new_lines if COMPILES.search(line)]
    if compiled:
        reasons.append(f"{len(compiled)} lines of compiling during the run, first: {compiled[0].strip()[:120]}")
    if any(SNAPSHOT.search(line) for line in boot_lines):
        reasons.append("a weight snapshot was written in this boot")
    if re.search(r"(?<!not )\bactive\b", clocks, re.IGNORECASE):
        reasons.append("the GPU's clocks are locked below their maximum")
    return reasons


class Watch:
    """From `begin` to `end`: what was written meanwhile.

    log     the engine's log, readable where the gate runs; None = only the page's tail
    status  address of the kit's page (`http://box:8082`); None = none
    """

    def __init__(self, log: Path | None, status: str | None, noted: Sequence[str] = ()) -> None:
        self.log = log
        self.status = status.rstrip("/") if status else None
        self.noted = tuple(noted)
        self._offset = 0
        self._tail: list[str] = []

    async def begin(self) -> None:
        """Remember where the log stands."""
        self._offset = self.log.stat().st_size if self.log and self.log.exists() else 0
        self._tail = (await self._page()).get("tail", [])

    async def end(self) -> dict[str, Any]:
        """The conditions: `cold` with its reasons, and what could not be looked at."""
        page = await self._page()
        boot, new = self._read()
        tail = page.get("tail", [])
        new += [line for line in tail if line not in self._tail]
        clocks = await _clocks()
        unknown = [
            name
            for name, known in (("engine log", bool(boot or tail)), ("clocks", bool(clocks)), ("page", bool(page)))
            if not known
        ]
        return {"cold": judge(new, boot + tail, clocks, self.noted), "not_seen": unknown, **page.get("facts", {})}

    def _read(self) -> tuple[list[str], list[str]]:
        if self.log is None or not self.log.exists():
            return [], []
        size = self.log.stat().st_size
        with self.log.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            start = file.tell()
            data = file.read()
        offset = self._offset if size >= self._offset else 0  # rotated meanwhile: all of it is new
        return _lines(data), _lines(data[max(0, offset - start) :])

    async def _page(self) -> dict[str, Any]:
        """The engine's last lines and a few facts; empty when there is no page."""
        if self.status is None:
            return {}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=3.0) as http:
                body = (await http.get(f"{self.status}/status.json")).json()
                tail = await _engine_log(http, self.status)
        except (httpx.HTTPError, ValueError):
            return {}
        if not isinstance(body, dict):
            return {}
        plan: Mapping[str, Any] = body.get("plan") or {}
        box: Mapping[str, Any] = body.get("box") or {}
        facts = {
            "plan": plan.get("hash"),
            "generation": (body.get("generation") or {}).get("id"),
            "instance": box.get("instance"),
        }
        return {"tail": tail, "facts": facts}


async def _engine_log(http: httpx.AsyncClient, status: str) -> list[str]:
    """The last lines of the engine's log from the page, which gives them only to who holds its STATUS_TOKEN."""
    token = os.environ.get("STATUS_TOKEN")
    if not token:
        return []
    answer = await http.get(f"{status}/logs/vllm.log?tail=200", headers={"Authorization": f"Bearer {token}"})
    return answer.text.splitlines() if answer.status_code == 200 else []


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


async def _clocks() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    process = await asyncio.create_subprocess_exec(
        tool,
        f"--query-gpu={LOCKED}",
        "--format=csv,noheader",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(10):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    return out.decode("utf-8", "replace").strip() if process.returncode == 0 else ""
