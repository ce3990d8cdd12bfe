"""From the last box's start to vLLM executed on all boxes: `python -m bench.boot [--boxes 4] [--runs 5]`.

Each run starts all boxes but the last, lets them find each other, starts the last, and watches /proc until
every box runs vLLM. The first run goes on until the cluster answers: vLLM's own start, to compare with.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

from bench import machine
from core.refusal import Refusal
from lab import cluster, watch
from lab.processes import wait_until
from lab.providers import process
from lab.state import Box, Lab

TARGET_S = 4.0


def main() -> None:
    """Run and write bench/results/boot.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    seconds, engine_seconds = [], 0.0
    for number in range(options.runs):
        lab, held = cluster.create("bench-boot", options.boxes, {"FABRIC_CHECK": "0"})
        with held:
            try:
                cluster.start_all(lab, held, [0.0] * (options.boxes - 1) + [5.0], print)
                last = time.monotonic()
                executed = until_executed(lab, last)
                seconds.append(executed)
                print(f"run {number + 1}: {executed:.2f} s to vLLM executed on all {options.boxes} boxes", flush=True)
                if number == 0:
                    engine_seconds = until_answering(lab) - last - executed
                    print(f"vLLM's own start: {engine_seconds:.1f} s", flush=True)
            finally:
                cluster.down(lab, grace_s=20)
    machine.write(
        "boot",
        {
            "what": "seconds from the last box's start to vLLM executed on all; FABRIC_CHECK=0",
            "boxes": options.boxes,
            "load_average_5_min": round(os.getloadavg()[1], 1),
            "runs_s": [round(value, 2) for value in seconds],
            "median_s": round(statistics.median(seconds), 2),
            "target_median_s": TARGET_S,
            "vllm_own_start_s": round(engine_seconds, 1),
        },
    )


def until_executed(lab: Lab, since: float, deadline_s: float = 60) -> float:
    """Seconds after `since` at which every box ran vLLM."""
    if not wait_until(lambda: all(runs_vllm(lab, box) for box in lab.boxes), deadline_s, 0.02):
        raise Refusal("bench", f"no vLLM after {deadline_s} s", "vLLM on every box", "Read the kits' logs.")
    return time.monotonic() - since


def runs_vllm(lab: Lab, box: Box) -> bool:
    """Whether vLLM's command has been executed in the box. Reads only the box's own processes: it is asked often."""
    kept = process.kept(box)
    waiting = [kept.child] if kept.child else []
    while waiting:
        pid = waiting.pop()
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"\0-m\0vllm.entrypoints" in command and b"guard.py" not in command:
                return True
            waiting += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def until_answering(lab: Lab) -> float:
    """The clock when the cluster's endpoint answers /v1/models."""
    head = lab.boxes[0]
    if not wait_until(lambda: (watch.get(head.address, lab.api_port, "/v1/models", 300) or (0, b""))[0] == 200, 300):
        raise Refusal("bench", "no answer in 300 s", "an answer", "Read the kits' logs.")
    return time.monotonic()


if __name__ == "__main__":
    main()
