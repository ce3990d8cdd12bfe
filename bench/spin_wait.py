"""What waiting for a message costs: a reader of vLLM's shared-memory broadcast, one message a second.

Run by the engine's Python with the tree to measure on PYTHONPATH:
    python bench/spin_wait.py [--seconds 30] [--json]
Prints the reader's CPU time and the latency of each message (writer's clock to reader's, CLOCK_MONOTONIC).
tests/image/behaviour runs it for a few seconds on the stock and on the patched tree.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from typing import Any


def reader(handle: Any, count: int, out: Any) -> None:
    """Take `count` messages; report CPU seconds between the first and the last, and latencies in milliseconds."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    queue = MessageQueue.create_from_handle(handle, 0)
    queue.wait_until_ready()
    queue.dequeue()
    cpu, wall, latencies = time.process_time(), time.monotonic(), []
    for _ in range(count):
        sent = queue.dequeue()
        latencies.append((time.monotonic_ns() - sent) / 1e6)
    out.send((time.process_time() - cpu, time.monotonic() - wall, latencies))


def measure(seconds: int) -> dict[str, float]:
    """Send a message a second and collect what the reader saw."""
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    queue = MessageQueue(n_reader=1, n_local_reader=1)
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=reader, args=(queue.export_handle(), seconds, send))
    process.start()
    queue.wait_until_ready()
    queue.enqueue(time.monotonic_ns())
    for _ in range(seconds):
        time.sleep(1)
        queue.enqueue(time.monotonic_ns())
    if not receive.poll(20):
        process.kill()
        raise SystemExit("spin_wait: the reader did not answer within 20 s of the last message")
    cpu, wall, latencies = receive.recv()
    process.join(10)
    return {
        "messages": len(latencies),
        "seconds": round(wall, 2),
        "cpu_s": round(cpu, 4),
        "latency_ms_median": round(statistics.median(latencies), 3),
        "latency_ms_max": round(max(latencies), 3),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.seconds)
    print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
