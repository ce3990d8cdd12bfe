"""No false alarm: `python -m bench.quiet --minutes 30` keeps a lab busy in every way that only looks broken.

In a network namespace of its own (needs root) 10 % of the packets to port 8082 are dropped; long answers, short ones
and idle gaps take turns at the door; and as many processes as cores burn the CPU half of the time. A generation that
ends is an alarm; there must be none. Writes bench/results/quiet.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from typing import Any

from bench import chaos, machine
from core.refusal import Refusal
from lab import blocks, watch
from lab.state import Lab

INSIDE = "GLM53_QUIET_INSIDE"
DROP = "-p tcp --dport 8082 -m statistic --mode random --probability 0.1 -j DROP"
SETTINGS = {"WEDGE_S": "30", "IDLE_CANARY_S": "10", "CANARY_S": "30", "LOST_S": "30"}
IDLE_S, BURN_S = 25.0, 45.0


def burn(until: float) -> None:
    """One core, busy and idle in turn."""
    while time.time() < until:
        busy = time.time() + BURN_S
        while time.time() < min(busy, until):
            pass
        time.sleep(max(0.0, min(BURN_S, until - time.time())))


def load(lab: Lab, until: float, seen: dict[str, int]) -> None:
    """Long answers, short ones, and gaps; every failure counts."""
    lengths = [3000, 1, 1, 1, 200]
    while time.time() < until:
        for tokens in lengths:
            try:
                watch.ask(lab, lab.boxes[-1], "Say something.", 300, tokens)
                seen["answers"] += 1
            except Refusal as refusal:
                seen["errors"] += 1
                print(refusal, flush=True)
            if time.time() > until:
                return
        time.sleep(IDLE_S)


def run(minutes: float, boxes: int, engine: str) -> dict[str, Any]:
    """What was seen."""
    chaos.WATCHES[engine] = SETTINGS
    blocks.BLOCKS = range(200, 255)  # labs outside this network know a box by its address too
    until = time.time() + 60 * minutes
    seen = {"answers": 0, "errors": 0, "looks": 0, "silent_looks": 0}
    with chaos.a_lab(f"quiet-{engine}", boxes, engine) as lab:
        first = chaos.generation(lab)
        ids = {first}
        fires = [multiprocessing.Process(target=burn, args=(until,)) for _ in range(os.cpu_count() or 1)]
        clients = [threading.Thread(target=load, args=(lab, until, seen)) for _ in range(3)]
        for fire in fires:
            fire.start()
        for client in clients:
            client.start()
        while time.time() < until:
            for box in lab.boxes:
                page = watch.status(lab, box, 5)
                seen["looks"] += 1
                if page is None:
                    seen["silent_looks"] += 1
                elif page["generation"]:
                    ids.add(page["generation"]["id"])
            time.sleep(1)
        for fire in fires:
            fire.join(10)
        for client in clients:
            client.join(310)
        logs = "".join((box.path / "kit.log").read_text(errors="replace") for box in lab.boxes)
        dropped = subprocess.run(
            ["iptables", "-L", "INPUT", "-v", "-n", "-x"], capture_output=True, text=True, check=True
        )
        counted = next((line.split()[0] for line in dropped.stdout.splitlines() if "8082" in line), "0")
        return {
            "engine": engine,
            "boxes": boxes,
            "minutes": minutes,
            "settings": SETTINGS,
            "generations": len(ids),
            "restarts": logs.count("-> stopping"),
            "packets_dropped": int(counted),
            **seen,
        }


def main() -> int:
    """Exit status 1 when a generation ended."""
    parser = argparse.ArgumentParser(prog="bench.quiet", description="No false alarm under load and loss.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--boxes", type=int, default=2)
    parser.add_argument("--engine", choices=sorted(chaos.READY_S), default="stand-in")
    chosen = parser.parse_args()
    if INSIDE not in os.environ:
        script = f"ip link set lo up && iptables -A INPUT {DROP} && exec {sys.executable} -m bench.quiet " + " ".join(
            sys.argv[1:]
        )
        return subprocess.run(
            ["unshare", "--net", "sh", "-c", script], env={**os.environ, INSIDE: "1"}, check=False
        ).returncode
    found = run(chosen.minutes, chosen.boxes, chosen.engine)
    machine.write("quiet", found)
    return 0 if found["generations"] == 1 and found["restarts"] == 0 and found["errors"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
