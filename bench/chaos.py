"""Faults against a lab, seeded, replayable and resumable: `python -m bench.chaos --boxes 3 --faults 40 --seed 1`.

    --engine stand-in   lab/engine.py instead of vLLM (named in every line of the result); `vllm` is the real one
    --out FILE          one JSON line a fault; faults that are in it already are not done again
    --only N            fault N alone: what it does follows from seed and N, not from the faults before
    --fault NAME        this fault only, with the boxes that seed and number give
    --provider netns    boxes with networks of their own (root): partitions and lost packets too

Each fault must end with every box healthy in one generation and a right answer, with one kit and one engine a box and
no shared memory that nobody holds.
bench/faults.py says what they do and which each provider has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench import recovery
from bench.faults import LOST_S, PROVIDERS
from core.refusal import Refusal
from entrypoint.supervise.processes import shared_memory
from lab import blocks, cluster, providers, state, vllm, watch
from lab.providers import netns, process
from lab.state import Box, Lab
from launcher.environments import python_of
from launcher.paths import ROOT

SETTINGS = {
    "LOST_S": str(LOST_S),
    "RETRIES": "1000",
    "RETRY_RESET_S": "1",  # a fault has nothing to do with the one before: no back-off grows from fault to fault
    "JOIN_S": "60",
}
WATCHES = {  # real vLLM compiles for its first answers, and this machine is shared
    "stand-in": {"WEDGE_S": "8", "IDLE_CANARY_S": "10", "CANARY_S": "20"},
    "vllm": {"WEDGE_S": "40", "IDLE_CANARY_S": "20", "CANARY_S": "60"},
}
READY_S = {"stand-in": 120.0, "vllm": 400.0}
CLOCK = ROOT / "lab" / "clock"  # its sitecustomize.py reads the box's file `clock`


@dataclass(frozen=True)
class Outcome:
    """One fault. recovery_s: from its end until all serve one generation; engine_s: of it vLLM's own start."""

    engine: str
    seed: int
    number: int
    boxes: int
    fault: str
    hit: list[str]
    ok: bool
    recovery_s: float
    engine_s: float
    note: str = ""
    commit: str = ""


def plan(lab: Lab, seed: int, number: int, fault: str = "") -> tuple[str, list[Box]]:
    """What fault `number` is, and the boxes it hits in order."""
    dice = random.Random(f"{seed}:{number}")
    table = PROVIDERS[lab.provider]
    name = dice.choice(sorted(table))
    name = fault or name
    boxes = list(lab.boxes)
    dice.shuffle(boxes)
    return name, boxes if table[name].everyone else boxes[: 1 if dice.random() < 0.8 else 2]


@cache
def commit() -> str:
    """The commit that runs, with "-dirty" when the tree differs from it; "" outside a clone."""
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def generation(lab: Lab) -> str:
    """The id that all boxes serve healthily, else ""."""
    pages = [watch.status(lab, box) for box in lab.boxes]
    ids = {page["generation"]["id"] if page and page["healthy"] and page["generation"] else "" for page in pages}
    return ids.pop() if len(ids) == 1 else ""


def engine_seconds(lab: Lab) -> float:
    """How long the engine itself took to start: launch and prove of the slowest box."""
    found = [0.0]
    for page in filter(None, (watch.status(lab, box) for box in lab.boxes)):
        found.append(sum(s["elapsed_s"] or 0 for s in page["stages"] if s["key"] in ("launch", "prove")))
    return max(found)


def orphaned(lab: Lab, box: Box) -> list[str]:
    """Shared-memory segments of the box that no process of it maps or has open; only where /dev/shm is its own."""
    if not lab.namespaces:
        return []
    held = shared_memory(one.pid for one in process.find(lab, box, "box"))
    names = process.host(lab, box).run(("ls", "-A", "/dev/shm"), deadline_s=10).out.split()
    return [name for name in names if f"/dev/shm/{name}" not in held]


def wrong(lab: Lab, engine: str) -> str:
    """What is left to complain of, or ""."""
    for box in lab.boxes:
        kits = process.find(lab, box, "kit")
        mains = [p for p in process.find(lab, box, "engine") if " serve " in p.title and "guard.py" not in p.title]
        if len(kits) != 1 or len(mains) != 1:
            return f"{box.name}: {len(kits)} kits, {len(mains)} engines"
        left = orphaned(lab, box)
        if left:
            return f"{box.name}: shared memory that nobody holds: {', '.join(left)}"
    try:
        answer, _ = watch.ask(lab, lab.boxes[-1], "Say something.", 60)
    except Refusal as refusal:
        return str(refusal)
    if engine == "stand-in" and set(answer.split()) != {str(len(lab.boxes))}:
        return f"wrong answer {answer!r}"
    return "" if answer else "empty answer"


def one(lab: Lab, engine: str, seed: int, number: int, only: str = "") -> Outcome:
    """Do fault `number` and wait for the group to serve again."""
    name, hit = plan(lab, seed, number, only)
    fault = PROVIDERS[lab.provider][name]
    before = generation(lab)
    fault.act(lab, hit)
    began = time.monotonic()
    note = ""
    while True:
        now = generation(lab)
        if now and (now != before or fault.ends != "must"):
            break
        if time.monotonic() - began > READY_S[engine]:
            lines = "; ".join(f"{box.name}: {watch.line(lab, box).text}" for box in lab.boxes)
            note = f"not serving after {READY_S[engine]:g}s: {lines}"
            break
        time.sleep(0.2)
    took = time.monotonic() - began
    if not note and fault.ends == "must not" and now != before:
        note = "a false alarm: the generation ended"
    note = note or wrong(lab, engine)
    if fault.undo is not None:
        fault.undo(lab, hit)
    own = engine_seconds(lab) if generation(lab) != before else 0.0
    names = [box.name for box in hit]
    return Outcome(
        engine, seed, number, len(lab.boxes), name, names, not note, round(took, 2), round(own, 2), note, commit()
    )


@contextmanager
def a_lab(name: str, boxes: int, engine: str, provider: str = "process") -> Iterator[Lab]:
    """A lab with short deadlines, serving; taken down at the end."""
    folder = state.home() / name
    clocks = {f"box{number}.GLM53_LAB_CLOCK": f"{folder}/box{number}/clock" for number in range(1, boxes + 1)}
    chosen = SETTINGS | WATCHES[engine] | clocks | {"PYTHONPATH": f"{CLOCK}{os.pathsep}{ROOT}"}
    if engine == "stand-in":
        script = state.home() / f"{name}-engine"
        state.home().mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{python_of(vllm.environment())}" "{ROOT}/lab/engine.py" "$@"\n')
        script.chmod(0o755)
        chosen |= {"ENGINE_PYTHON": str(script), "SELF_TEST": "0"}
    lab, held = cluster.create(name, boxes, chosen, provider=provider)
    try:
        # `held` until the end: while all boxes are down nobody else may take their addresses.
        cluster.start_all(lab, held, (), print)
        watch.until_all_healthy(lab, READY_S[engine], lambda _: None)
        yield lab
    finally:
        cluster.stop(lab, lab.boxes, 25)
        left = providers.of(lab).leftovers(lab)
        held.close()
        cluster.remove(lab)
        (state.home() / f"{name}-engine").unlink(missing_ok=True)
        if left:
            raise Refusal("chaos", "; ".join(left), "nothing left of the lab", "Look at them with ps.")


def done(out: Path) -> dict[int, dict[str, Any]]:
    """What is in the file already, by number."""
    if not out.exists():
        return {}
    return {row["number"]: row for row in map(json.loads, out.read_text().splitlines())}


def run(
    boxes: int,
    faults: int,
    seed: int,
    engine: str,
    out: Path,
    only: int | None = None,
    provider: str = "process",
    fault: str = "",
) -> list[dict[str, Any]]:
    """Do what is missing; all outcomes. A fault that was not survived is recorded, and a fresh lab goes on."""
    todo = [number for number in ([only] if only is not None else range(faults)) if number not in done(out)]
    while todo:
        with a_lab(f"chaos-{engine}-{boxes}-{seed}", boxes, engine, provider) as lab:
            while todo:
                outcome = one(lab, engine, seed, todo.pop(0), fault)
                with out.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                print(json.dumps(asdict(outcome)), flush=True)
                if not outcome.ok:
                    for box in lab.boxes:
                        print(f"---- {box.name}\n{(box.path / 'kit.log').read_text(errors='replace')[-4000:]}")
                    break
    return list(done(out).values())


def main() -> int:
    """Exit status 1 when a fault was not survived."""
    parser = argparse.ArgumentParser(prog="bench.chaos", description="Faults against a lab.")
    parser.add_argument("--boxes", type=int, default=2)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=sorted(READY_S), default="stand-in")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--provider", choices=sorted(PROVIDERS), default="process")
    parser.add_argument("--fault", choices=sorted(PROVIDERS["netns"]), default="")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a run that is cut short takes its lab down
    if chosen.provider == "netns":
        netns.own_network([sys.executable, "-m", "bench.chaos", *sys.argv[1:]])
        blocks.BLOCKS = netns.blocks_here(f"{chosen.engine}-{chosen.boxes}-{chosen.seed}")
    out = chosen.out or ROOT / f".lab/chaos-{chosen.engine}-{chosen.boxes}-{chosen.seed}.jsonl"
    out.parent.mkdir(exist_ok=True)
    rows = run(chosen.boxes, chosen.faults, chosen.seed, chosen.engine, out, chosen.only, chosen.provider, chosen.fault)
    print(recovery.summary(rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
