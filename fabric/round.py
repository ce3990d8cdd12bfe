"""One round of the fabric check as the kit sees it: start a worker, read its events, end it whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
RUN_S = 60.0  # longest stay in one collective
SILENT_S = 5.0
LOOK_S = 0.25
STOPPED_S = 2.0  # a worker in state T so long will not go on by itself
ENOUGH = 0.8  # of what is expected; a lower bandwidth deserves a closer look
GRACE_S = 5.0  # ranks end apart by no more than the worker's LINGER_S and `_part`


@dataclass(frozen=True)
class Job:
    """What one rank is told. `host`, `port`: the head's engine address and the generation's check port.

    expected_gbps  0 where nothing is expected; below `enough` of what the least of all boxes expects the neighbour
                   pairs are measured too
    facts          name -> text of what must be equal on all boxes
    """

    rank: int
    world: int
    host: str
    port: int
    backend: str
    bytes: int
    facts: Mapping[str, str]
    expected_gbps: float = 0.0
    meet_s: float = 120.0
    run_s: float = RUN_S
    silent_s: float = SILENT_S
    probe_s: float = 2.0
    device: int = 0
    enough: float = ENOUGH


@dataclass(frozen=True)
class Outcome:
    """How a round ended, by ranks.

    expected_gbps  of the box that expects least, which all went by
    phase    the last one reached; `missing` did not arrive; `blamed` rank -> why; `error` of this box
    """

    phase: str = "started"
    missing: tuple[int, ...] = ()
    blamed: Mapping[int, str] = field(default_factory=dict)
    error: str = ""
    gbps: float = 0.0
    expected_gbps: float = 0.0
    seconds: float = 0.0
    latency_us: Mapping[str, float] = field(default_factory=dict)
    edges: Mapping[str, float] = field(default_factory=dict)
    speeds: tuple[float, ...] = ()
    transport: str = ""
    facts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """All ranks measured."""
        return self.gbps > 0


async def start(python: str, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """A worker that imports torch and then waits for its job. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        python,
        str(WORKER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
        limit=1 << 22,
    )


async def run_round(
    python: str,
    job: Job,
    environment: Mapping[str, str],
    deadline_s: float,
    on_phase: Callable[[str], None] = lambda phase: None,
    worker: asyncio.subprocess.Process | None = None,
    ended: Callable[[], Collection[int]] = tuple,
) -> Outcome:
    """Run this box's worker. Its process group is gone when this returns, also when the caller is cancelled.

    `worker`: one started before, taken when it still runs. `ended`: ranks whose kits say that their part is over.
    """
    try:
        process = worker if worker is not None and worker.returncode is None else await start(python, environment)
    except OSError as error:
        return Outcome(error=f"{python} cannot be started: {error.strerror}")
    events: list[dict[str, Any]] = []
    try:
        given = job.__dict__ | {"facts": dict(job.facts), "environment": dict(environment)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.close()
        reading = asyncio.ensure_future(_read(process, events, on_phase))
        try:
            events += await _guard(process, reading, deadline_s, ended, events)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        await end(process)
    return outcome(events)


async def _read(
    process: asyncio.subprocess.Process, events: list[dict[str, Any]], on_phase: Callable[[str], None]
) -> None:
    """Events until the worker ends; an end without a word is an event too."""
    assert process.stdout is not None
    last_text = ""
    async for line in process.stdout:
        event = parse(line)
        events.append(event)
        last_text = last_text if event else line.decode("utf-8", "replace").strip()[:200]
        if event.get("event") == "phase":
            on_phase(str(event.get("phase")))
    status = await process.wait()
    if status < 0:
        events.append({"event": "error", "text": f"the check's worker was ended by signal {-status}"})
    elif not any(one.get("event") in ("error", "missing", "blame", "result") for one in events):
        text = f"the check's worker ended with status {status}: {last_text or 'it said nothing'}"
        events.append({"event": "error", "text": text})


async def _guard(
    process: asyncio.subprocess.Process,
    reading: asyncio.Future[None],
    deadline_s: float,
    ended: Callable[[], Collection[int]],
    events: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Wait for the worker; what ends it early as events: its deadline, a stop signal, another box that is through."""
    began = time.monotonic()
    since: dict[int, float] = {}
    stopped_at = 0.0
    while not reading.done():
        await asyncio.wait({reading}, timeout=LOOK_S)
        now = time.monotonic()
        stopped_at = (stopped_at or now) if _is_stopped(process.pid) else 0.0
        for rank in ended():
            since.setdefault(rank, now)
        alone = [rank for rank, at in since.items() if now - at > GRACE_S]
        if reading.done():
            break
        if stopped_at and now - stopped_at > STOPPED_S:
            return [{"event": "error", "text": "the check's worker was stopped (a signal, or a debugger)"}]
        if alone:
            first = min(alone, key=lambda rank: since[rank])
            return [{"event": "blame", "rank": first, "why": "its part of the check ended early: see its own page"}]
        if now - began > deadline_s:
            last = next((one.get("phase") for one in reversed(events) if one.get("event") == "phase"), "started")
            return [{"event": "error", "text": f"ended after {deadline_s:g} s; last phase: {last}"}]
    reading.result()
    return []


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


async def end(process: asyncio.subprocess.Process) -> None:
    """End a worker and all it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())


def parse(line: bytes) -> dict[str, Any]:
    """An event, or an empty one for a line that is none (a library's own print)."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def outcome(events: Sequence[Mapping[str, Any]]) -> Outcome:
    """The outcome that a worker's events tell. Pure."""
    phase, error = "started", ""
    missing: tuple[int, ...] = ()
    blamed: dict[int, str] = {}
    result: Mapping[str, Any] = {}
    for event in events:
        match event.get("event"):
            case "phase":
                phase = str(event["phase"])
            case "missing":
                missing = tuple(int(rank) for rank in event["ranks"])
            case "blame":
                blamed[int(event["rank"])] = str(event["why"])
            case "error":
                error = error or str(event["text"])
            case "result":
                result = event
    return Outcome(
        phase=phase,
        missing=missing,
        blamed=blamed,
        error=error,
        gbps=float(result.get("gbps", 0.0)),
        expected_gbps=float(result.get("expected_gbps", 0.0)),
        seconds=float(result.get("seconds", 0.0)),
        latency_us=dict(result.get("latency_us", {})),
        edges=dict(result.get("edges", {})),
        speeds=tuple(result.get("speeds", ())),
        transport=str(result.get("transport", "")),
        facts={int(rank): facts for rank, facts in result.get("facts", {}).items()},
    )
