"""What the healthy fabric check adds to a start: `python -m bench.fabric_healthy [--boxes 4] [--runs 3]`.

A lab of real kits with the stand-in engine, all boxes started at once; with and without the check in turn, from the
start to the engine executed on all boxes. The check is the real one: torch, gloo, FABRIC_CHECK_BYTES=2MiB.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

from bench import machine
from bench.boot import until_executed
from lab import cluster, vllm
from lab.state import Lab
from launcher.environments import python_of
from launcher.paths import ROOT

TARGET_S = 8.0
BYTES = "2MiB"
TOOK = re.compile(r"stage=fabric done .*?took=([0-9.]+)")


def main() -> None:
    """Run and write bench/results/fabric_healthy.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    without, within, stages = [], [], []
    with tempfile.TemporaryDirectory(prefix="glm53-bench-") as folder:
        python = engine(Path(folder))
        for number in range(options.runs):
            plain, _ = started(options.boxes, python, "0")
            checked, stage = started(options.boxes, python, "1")
            without.append(plain)
            within.append(checked)
            stages.append(stage)
            text = f"{plain:.2f} s without the check, {checked:.2f} s with it ({stage:.2f} s in its stage)"
            print(f"run {number + 1}: {text}", flush=True)
    added = [round(checked - plain, 2) for plain, checked in zip(without, within, strict=True)]
    machine.write(
        "fabric_healthy",
        {
            "what": f"seconds that the healthy check adds: gloo, {BYTES}, stand-in engine, boxes started at once",
            "boxes": options.boxes,
            "load_average_5_min": round(os.getloadavg()[1], 1),
            "added_s": added,
            "median_added_s": round(statistics.median(added), 2),
            "stage_s": [round(value, 2) for value in stages],
            "to_the_engine_without_s": [round(value, 2) for value in without],
            "to_the_engine_with_s": [round(value, 2) for value in within],
            "target_added_s": TARGET_S,
        },
    )


def engine(folder: Path) -> Path:
    """The engine's Python, and the stand-in where vLLM is asked for."""
    python = python_of(vllm.environment())
    script = folder / "python"
    chosen = f'[ "$1" = -m ] && exec "{python}" "{ROOT}/lab/engine.py" "$@"'
    script.write_text(f'#!/bin/sh\n{chosen}\nexec "{python}" "$@"\n')
    script.chmod(0o755)
    return script


def started(boxes: int, python: Path, check: str) -> tuple[float, float]:
    """(seconds from the start to the engine on all boxes, longest stay in the check's stage on any)."""
    knobs = {"FABRIC_CHECK": check, "FABRIC_CHECK_BYTES": BYTES, "ENGINE_PYTHON": str(python), "SELF_TEST": "0"}
    lab, held = cluster.create("bench-fabric", boxes, knobs)
    with held:
        try:
            began = time.monotonic()
            cluster.start_all(lab, held, [0.0] * boxes, print)
            return until_executed(lab, began), longest_stage(lab)
        finally:
            cluster.down(lab, grace_s=20)


def longest_stage(lab: Lab) -> float:
    """From the boxes' own logs."""
    texts = [(box.path / "kit.log").read_text(errors="replace") for box in lab.boxes]
    return max((float(found) for text in texts for found in TOOK.findall(text)), default=0.0)


if __name__ == "__main__":
    main()
