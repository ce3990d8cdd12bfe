"""Is the page quick while the machine is busy, small, and still when idle? `python -m bench.status [--engine X]`.

Two boxes serve (--boxes). Open loop: requests leave at fixed times, 20 a second for --seconds, whether earlier ones are
answered or not, so a stall shows in every request that it delays. Half go to /healthz, half to /. Meanwhile clients
keep the engine busy; with the stand-in, which does not, two processes burn the cores. Also: memory of one box's kit
with MCP loaded, its processor time while nobody looks, and the time from the start of a process to the first byte.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from bench import machine
from bench.door import p99, processor_seconds
from bench.memory import TARGET_MIB, of_box
from bench.page import LONG_S, a_lab
from core.refusal import Refusal
from lab import cluster, watch
from lab.providers import process
from lab.state import Lab
from launcher.environments import python_of
from launcher.paths import ROOT

BOXES = 2
RATE = 20.0
TARGETS_MS = {"/healthz": 100.0, "/": 300.0}
FIRST_BYTE_S = 1.0
IDLE_SHARE = 0.01
CLIENTS = 4
LONGEST_S = 10.0
# A session loads the official SDK; the plain form alone would not.
MCP_START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


async def ask(address: str, port: int, path: str) -> bool:
    """One request on a connection of its own, as a browser's or Docker's; True for a whole answer.

    Plain asyncio: a client that costs more than the page would measure itself on a busy machine.
    """
    try:
        async with asyncio.timeout(LONGEST_S):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                request = f"GET {path} HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                answer = await reader.read(-1)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))


async def open_loop(address: str, port: int, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds from when a request was due to its last byte, by path.

    `late_*`: how late this process itself was with sending, which the kernel's scheduler does to every process of a
    machine that is short of processors; it is part of the times above.
    """
    times: dict[str, list[float]] = {path: [] for path in TARGETS_MS}
    late: list[float] = []
    failed = dict.fromkeys(TARGETS_MS, 0)

    async def one(path: str, due: float) -> None:
        failed[path] += not await ask(address, port, path)
        times[path].append(1000 * (time.perf_counter() - due))

    began, tasks = time.perf_counter(), []
    for number in range(int(seconds * RATE)):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        late.append(1000 * (time.perf_counter() - due))
        tasks.append(asyncio.create_task(one(list(TARGETS_MS)[number % len(TARGETS_MS)], due)))
    await asyncio.gather(*tasks)
    sent = {"late_p50_ms": round(statistics.median(late), 1), "late_p99_ms": round(p99(late), 1)}
    return {"sent": sent} | {
        path: {
            "requests": len(found),
            "failed": failed[path],
            "p50_ms": round(statistics.median(found), 1),
            "p99_ms": round(p99(found), 1),
            "target_p99_ms": TARGETS_MS[path],
        }
        for path, found in times.items()
    }


@contextlib.contextmanager
def busy(lab: Lab, engine: str) -> Iterator[None]:
    """Clients at the door until the end; with the stand-in two processes that burn, too."""
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            with contextlib.suppress(Refusal, OSError):  # a busy engine may time one out: it is load, not a result
                watch.ask(lab, lab.boxes[0], "Write a long text.", 60, tokens=200)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1 if engine == "stand-in" else 0)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for burner in burners:
            burner.kill()
            burner.wait()
        for thread in threads:
            thread.join(70)


def idle(pids: Sequence[int], seconds: float) -> float:
    """Share of one core that these processes use while nobody asks."""
    before = sum(processor_seconds(pid) for pid in pids)
    time.sleep(seconds)
    return (sum(processor_seconds(pid) for pid in pids) - before) / seconds


def kit_pids(lab: Lab, number: int) -> list[int]:
    """The kit's processes of a box."""
    family = process.inside(lab, lab.boxes[number])
    return [one.pid for one in family if any(words in one.title for words in process.KIT_TITLES)]


def first_byte(address: str, settings: dict[str, str]) -> float:
    """Seconds from the start of a kit with bad knobs, no model and no peers to the page's first byte."""
    with tempfile.TemporaryDirectory(prefix="glm53-status-") as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "STATUS_BIND": address,
            "LAN_ADDRESS": address,
            **{name: folder for name in ("STATE_DIR", "LOG_DIR", "CACHE_ROOT")},
            **settings,
        }
        command = [str(python_of(locked_kit())), "-m", "entrypoint"]
        began = time.perf_counter()
        made = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection((address, 8082), 5) as connection:
                    connection.sendall(f"GET / HTTP/1.1\r\nHost: {address}:8082\r\n\r\n".encode())
                    if connection.recv(1):
                        return time.perf_counter() - began
                if made.poll() is not None or time.perf_counter() - began > 30:
                    raise SystemExit("the kit showed no page")
                time.sleep(0.005)
        finally:
            made.terminate()
            made.wait(20)


def locked_kit() -> Path:
    """The kit's own environment."""
    from launcher.environments import locked

    return locked("kit")


def main() -> int:
    """Run and write bench/results/status-<engine>.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(LONG_S), default="stand-in")
    parser.add_argument("--boxes", type=int, default=BOXES)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first-only", action="store_true", help="only the time to the first byte")
    options = parser.parse_args()
    starts = [first_byte(f"127.77.{at}.1", {"TP": "many", "PEERS": "nowhere.invalid"}) for at in range(5)]
    found: dict[str, Any] = {
        "first_byte_s": [round(one, 3) for one in starts],
        "target_first_byte_s": FIRST_BYTE_S,
    }
    if not options.first_only:
        found |= served(options.engine, options.boxes, options.seconds)
    machine.write(
        f"status-{options.engine}" + (f"-{options.boxes}" if options.boxes != BOXES else ""),
        {
            "what": "open loop of 20 requests/s while the engine is busy; memory with MCP loaded; idle; first byte",
            "load_average_1_min": round(os.getloadavg()[0], 1),
            **found,
        },
    )
    return 0


def served(engine: str, boxes: int, seconds: float) -> dict[str, Any]:
    """Everything that needs boxes that serve."""
    with a_lab("bench-status", engine, {}, boxes=boxes) as (lab, held):
        cluster.start_all(lab, held, (), print)
        watch.until_all_healthy(lab, LONG_S[engine], lambda _: None)
        base = f"http://{lab.boxes[0].address}:{lab.status_port}"
        with httpx.Client(base_url=base, trust_env=False, timeout=60) as client:
            listed = client.post("/mcp", json=MCP_START, headers={"Accept": "application/json, text/event-stream"})
            client.get("/")
            client.get("/metrics")
        time.sleep(15)
        quiet = idle(kit_pids(lab, 0), 60)
        memory = of_box(lab, lab.boxes[0])
        with busy(lab, engine):
            time.sleep(5)
            load = [round(one, 1) for one in os.getloadavg()]
            loop = asyncio.run(open_loop(lab.boxes[0].address, lab.status_port, seconds))
        after = of_box(lab, lab.boxes[0])
    return {
        "engine": engine,
        "boxes": boxes,
        "open_loop": loop,
        "load_averages": load,
        "mcp_loaded": listed.status_code == 200,
        "memory": memory,
        "memory_after": after,
        "target_mib": TARGET_MIB,
        "idle_share_of_a_core": round(quiet, 4),
        "target_idle_share": IDLE_SHARE,
    }


if __name__ == "__main__":
    sys.exit(main())
