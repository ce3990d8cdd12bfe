"""How long a box takes to refuse a fault of its own: process start to exit, `python -m bench.refusals`.

Each fault five times on one kit alone; the issue's bound is 2 s. Writes bench/results/refusals.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from launcher.environments import locked, python_of
from launcher.paths import ROOT, cache

FAULTS = {
    "TP=5": {"TP": "5"},
    "TP=four": {"TP": "four"},
    "KV_CACHE_MEMORY=-1": {"KV_CACHE_MEMORY": "-1"},
    "MAX_NUM_SEQ=8": {"MAX_NUM_SEQ": "8"},
    "LIMIT_MM='{'": {"LIMIT_MM": "{"},
    "missing model": {"MODEL_DIR": "/nowhere/model"},
}
ROUNDS = 5


def once(knobs: dict[str, str], folder: str) -> float:
    """Seconds from start to exit of one kit that must refuse (exit status 2)."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache() / "pycache"),
        "ENGINE_PROFILE": "lab-cpu", "ON_REFUSAL": "exit", "LAN_ADDRESS": "127.0.250.11", "STATUS_BIND": "127.0.250.11",
        "ENGINE_PYTHON": "/bin/false", "STATE_DIR": folder, "LOG_DIR": folder, "CACHE_ROOT": folder, "TP": "2",
        "SPEC_METHOD": "none",
    } | knobs  # fmt: skip
    begin = time.monotonic()
    done = subprocess.run(
        [str(python_of(locked("kit"))), "-m", "entrypoint"],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    seconds = time.monotonic() - begin
    if done.returncode != 2:
        sys.exit(f"{knobs} was not refused: exit {done.returncode}\n{done.stdout.decode()[-500:]}")
    return seconds


def main() -> None:
    """Measure, print a line a fault, write the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        once({"TP": "5"}, folder)  # compiles the kit's files
        found = {name: [once(knobs, folder) for _ in range(ROUNDS)] for name, knobs in FAULTS.items()}
    rows = {name: {"median_s": statistics.median(times), "worst_s": max(times)} for name, times in found.items()}
    for name, row in rows.items():
        print(f"{name:<20} median {row['median_s']:.2f} s  worst {row['worst_s']:.2f} s")
    result = {"machine": machine(), "rounds": ROUNDS, "bound_s": 2.0, "faults": rows}
    (Path(ROOT) / "bench/results/refusals.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
