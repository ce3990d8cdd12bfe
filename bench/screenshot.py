"""The picture in docs/page.md: `python -m bench.screenshot`. A lab of four boxes (stand-in engine) that has served for
some minutes, the page of its last box, in Chromium. Needs chromium, node and npm.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time

from bench.page import LONG_S, SERVES, Camera, a_lab, until
from core.refusal import Refusal
from lab import cluster, watch
from lab.state import Lab
from launcher.paths import ROOT

FILE = ROOT / "docs" / "page.png"
LARGEST = 300_000
WIDTH, HEIGHT = 1180, 1400


def main() -> int:
    """Serve under a changing load, take the picture, refuse one that is too large for the repository."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=sorted(LONG_S), default="stand-in")
    parser.add_argument("--seconds", type=float, default=180)
    options = parser.parse_args()
    with a_lab("spark", options.engine, {}) as (lab, held):
        cluster.start_all(lab, held, (), print)
        until(lab, lab.boxes, SERVES, LONG_S[options.engine])
        stop = threading.Event()
        threads = [threading.Thread(target=client, args=(lab, stop, seed), daemon=True) for seed in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(options.seconds)
        camera = Camera(FILE.parent)
        url = f"http://{lab.boxes[-1].address}:{lab.status_port}/"
        found = camera.shoot(url=url, file=str(FILE), width=WIDTH, height=HEIGHT, wait=3000)
        camera.close()
        stop.set()
        for thread in threads:
            thread.join(60)
    size = FILE.stat().st_size
    print(f"{FILE.relative_to(ROOT)}: {size} bytes; {found}")
    return 0 if size <= LARGEST and not found.get("errors") else 1


def client(lab: Lab, stop: threading.Event, seed: int) -> None:
    """Requests of changing length with pauses between them."""
    chance = random.Random(seed)
    while not stop.is_set():
        with contextlib.suppress(Refusal):
            watch.ask(lab, lab.boxes[seed % len(lab.boxes)], "Say something.", 60, tokens=chance.randint(20, 400))
        stop.wait(chance.uniform(0, 6))


if __name__ == "__main__":
    sys.exit(main())
