"""What the door costs: `python -m bench.door [--seconds 20]`.

A small engine stand-in, the real door and the client are three processes. Latency: one small request at a
time over kept connections, straight and through the door in turns; added p99 is the difference of the two
p99s. Streams: 64 clients that each get 30 events of 200 bytes a second; the door's processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import machine
from entrypoint.door import Door

STREAMS, EVENTS_PER_S, EVENT_BYTES = 64, 30, 200
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: 2\r\n\r\n{}"
BODY = b'{"choices":[{"text":"x"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
STREAM = b"GET /stream HTTP/1.1\r\nHost: bench\r\n\r\n"


async def engine() -> None:
    """Answer small requests at once, and `GET /stream` with events for ever. Prints its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /stream"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    event = b"data: " + b"x" * (EVENT_BYTES - 8) + b"\n\n"
                    while not writer.is_closing():
                        writer.write(event)
                        await writer.drain()
                        await asyncio.sleep(1 / EVENTS_PER_S)
                    return
                await reader.readexactly(2)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def door(port: int) -> None:
    """The kit's door in front of the stand-in. Prints its port."""
    made = Door("127.0.0.1", 0, lambda: ("127.0.0.1", port), 5.0, lambda: "bench")
    await made.start()
    print(made.port, flush=True)
    await asyncio.Event().wait()


async def latency(ports: tuple[int, int], seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each request, straight and through the door, in turns."""
    connections = [await asyncio.open_connection("127.0.0.1", port) for port in ports]
    times: tuple[list[float], list[float]] = ([], [])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for (reader, writer), measured in zip(connections, times, strict=True):
            began = time.perf_counter()
            writer.write(REQUEST)
            await reader.readexactly(len(ANSWER))
            measured.append((time.perf_counter() - began) * 1000)
    for _, writer in connections:
        writer.close()
    return times


async def streams(port: int, pid: int, seconds: float) -> tuple[float, float]:
    """(share of one core the door used, events a second that arrived) with STREAMS clients."""
    arrived = 0

    async def listen() -> None:
        nonlocal arrived
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(STREAM)
        await reader.readuntil(b"\r\n\r\n")
        while True:
            await reader.readexactly(EVENT_BYTES)
            arrived += 1

    tasks = [asyncio.create_task(listen()) for _ in range(STREAMS)]
    await asyncio.sleep(2)  # all connected
    before, first, began = processor_seconds(pid), arrived, time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    share, rate = (processor_seconds(pid) - before) / took, (arrived - first) / took
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return share, rate


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def start(*words: str) -> tuple[subprocess.Popen[str], int]:
    """Another process of this file, and the port that it prints."""
    made = subprocess.Popen([sys.executable, "-m", "bench.door", *words], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    return made, int(made.stdout.readline())


def main() -> None:
    """Run and write bench/results/door.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--door", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        asyncio.run(engine())
    if options.door:
        asyncio.run(door(options.door))
    behind, port = start("--engine")
    front, door_port = start("--door", str(port))
    try:
        straight, through = asyncio.run(latency((port, door_port), options.seconds))
        share, rate = asyncio.run(streams(door_port, front.pid, options.seconds))
    finally:
        for process in (front, behind):
            process.kill()
            process.wait()
    machine.write(
        "door",
        {
            "what": "milliseconds of a small request straight and through the door; the door's processor with streams",
            "load_average_1_min": round(os.getloadavg()[0], 1),
            "requests": len(through),
            "straight_ms": {"p50": round(statistics.median(straight), 3), "p99": round(p99(straight), 3)},
            "through_ms": {"p50": round(statistics.median(through), 3), "p99": round(p99(through), 3)},
            "added_p99_ms": round(p99(through) - p99(straight), 3),
            "target_added_p99_ms": 1.0,
            "streams": STREAMS,
            "events_per_s_wanted": STREAMS * EVENTS_PER_S,
            "events_per_s": round(rate),
            "share_of_a_core": round(share, 3),
            "target_share_of_a_core": 0.1,
        },
    )


if __name__ == "__main__":
    main()
