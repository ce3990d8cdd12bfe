"""Faults against a lab, seeded, replayable and resumable: `python -m bench.chaos --boxes 3 --faults 40 --seed 1`.

    --engine stand-in   lab/engine.py instead of vLLM (named in every line of the result); `vllm` is the real one
    --out FILE          one JSON line a fault; faults that are in it already are not done again
    --only N            fault N alone: what it does follows from seed and N, not from the faults before

Each fault must end with every box healthy in one generation and a right answer, with one kit and one engine a box.
Faults of the process provider: see FAULTS. Not among them: partitions, lost packets (they need networks of their own).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine
from core.refusal import Refusal
from lab import cluster, processes, state, vllm, watch
from lab.providers import process
from lab.state import Box, Lab
from launcher.environments import python_of
from launcher.paths import ROOT

LOST_S = 6
SETTINGS = {
    "LOST_S": str(LOST_S),
    "RETRIES": "1000",
    "JOIN_S": "60",
}
WATCHES = {  # real vLLM compiles for its first answers, and this machine is shared
    "stand-in": {"WEDGE_S": "8", "IDLE_CANARY_S": "10", "CANARY_S": "20"},
    "vllm": {"WEDGE_S": "40", "IDLE_CANARY_S": "20", "CANARY_S": "60"},
}
READY_S = {"stand-in": 120.0, "vllm": 400.0}
Act = Callable[[Lab, list[Box]], None]


def _kill(what: process.What) -> Act:
    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            processes.send(process.find(lab, box, what), signal.SIGKILL)

    return act


def _power(lab: Lab, hit: list[Box]) -> None:
    for box in hit:
        process.kill_all(lab, box)
    time.sleep(1)
    for box in hit:
        cluster.start(lab, box)


def _pause(seconds: float) -> Act:
    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            process.pause(lab, box)
        time.sleep(seconds)
        for box in hit:
            process.resume(lab, box)

    return act


def _restart(lab: Lab, hit: list[Box]) -> None:
    cluster.stop(lab, hit)
    for box in hit:
        cluster.start(lab, box)


def _still(lab: Lab, hit: list[Box]) -> None:
    """A rank stands still, its kit does not: vLLM's /health stays 200."""
    for box in hit:
        processes.send(process.find(lab, box, "engine"), signal.SIGSTOP)


@dataclass(frozen=True)
class Fault:
    """everyone: hits all boxes, in an order of its own; ends: the generation that runs must not survive it."""

    act: Act
    everyone: bool = False
    ends: bool = True


FAULTS: dict[str, Fault] = {
    "kill -9 of a kit": Fault(_kill("kit")),
    "kill -9 of an engine": Fault(_kill("engine")),
    "power cut of a box": Fault(_power),
    "box stopped and started": Fault(_restart),
    "pause below LOST_S": Fault(_pause(LOST_S / 3), ends=False),
    "pause above LOST_S": Fault(_pause(LOST_S + 3)),
    "rank stands still": Fault(_still),
    "kill -9 of all kits": Fault(_kill("kit"), everyone=True),
    "power cut of all boxes": Fault(_power, everyone=True),
    "all boxes stopped and started": Fault(_restart, everyone=True),
}


@dataclass(frozen=True)
class Outcome:
    """One fault. recovery_s: from its end until all serve and one right answer; engine_s: of it vLLM's own start."""

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


def plan(lab: Lab, seed: int, number: int) -> tuple[str, list[Box]]:
    """What fault `number` is, and the boxes it hits in order."""
    dice = random.Random(f"{seed}:{number}")
    name = dice.choice(sorted(FAULTS))
    boxes = list(lab.boxes)
    dice.shuffle(boxes)
    return name, boxes if FAULTS[name].everyone else boxes[: 1 if dice.random() < 0.8 else 2]


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


def wrong(lab: Lab, engine: str) -> str:
    """What is left to complain of, or ""."""
    for box in lab.boxes:
        kits = process.find(lab, box, "kit")
        mains = [p for p in process.find(lab, box, "engine") if " serve " in p.title and "guard.py" not in p.title]
        if len(kits) != 1 or len(mains) != 1:
            return f"{box.name}: {len(kits)} kits, {len(mains)} engines"
    try:
        answer, _ = watch.ask(lab, lab.boxes[-1], "Say something.", 60)
    except Refusal as refusal:
        return str(refusal)
    if engine == "stand-in" and set(answer.split()) != {str(len(lab.boxes))}:
        return f"wrong answer {answer!r}"
    return "" if answer else "empty answer"


def one(lab: Lab, engine: str, seed: int, number: int) -> Outcome:
    """Do fault `number` and wait for the group to serve again."""
    name, hit = plan(lab, seed, number)
    before = generation(lab)
    FAULTS[name].act(lab, hit)
    began = time.monotonic()
    note = ""
    while True:
        now = generation(lab)
        if now and (now != before or not FAULTS[name].ends):
            break
        if time.monotonic() - began > READY_S[engine]:
            lines = "; ".join(f"{box.name}: {watch.line(lab, box).text}" for box in lab.boxes)
            note = f"not serving after {READY_S[engine]:g}s: {lines}"
            break
        time.sleep(0.2)
    note = note or wrong(lab, engine)
    took = time.monotonic() - began
    own = engine_seconds(lab) if generation(lab) != before else 0.0
    names = [box.name for box in hit]
    return Outcome(engine, seed, number, len(lab.boxes), name, names, not note, round(took, 2), round(own, 2), note)


@contextmanager
def a_lab(name: str, boxes: int, engine: str) -> Iterator[Lab]:
    """A lab with short deadlines, serving; taken down at the end."""
    chosen = SETTINGS | WATCHES[engine]
    if engine == "stand-in":
        script = state.home() / f"{name}-engine"
        state.home().mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{python_of(vllm.environment())}" "{ROOT}/lab/engine.py" "$@"\n')
        script.chmod(0o755)
        chosen |= {"ENGINE_PYTHON": str(script), "SELF_TEST": "0"}
    lab, held = cluster.create(name, boxes, chosen)
    try:
        # `held` until the end: while all boxes are down nobody else may take their addresses.
        cluster.start_all(lab, held, (), print)
        watch.until_all_healthy(lab, READY_S[engine], lambda _: None)
        yield lab
    finally:
        cluster.stop(lab, lab.boxes, 25)
        left = process.leftovers(lab)
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


def run(boxes: int, faults: int, seed: int, engine: str, out: Path, only: int | None = None) -> list[dict[str, Any]]:
    """Do what is missing; all outcomes. A fault that was not survived is recorded, and a fresh lab goes on."""
    todo = [number for number in ([only] if only is not None else range(faults)) if number not in done(out)]
    while todo:
        with a_lab(f"chaos-{engine}-{boxes}-{seed}", boxes, engine) as lab:
            while todo:
                outcome = one(lab, engine, seed, todo.pop(0))
                with out.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                print(json.dumps(asdict(outcome)), flush=True)
                if not outcome.ok:
                    for box in lab.boxes:
                        print(f"---- {box.name}\n{(box.path / 'kit.log').read_text(errors='replace')[-4000:]}")
                    break
    return list(done(out).values())


def summary(rows: list[dict[str, Any]]) -> str:
    """Median and worst recovery, beside the engine's own start."""
    good = [row for row in rows if row["ok"] and row["engine_s"]]
    times = sorted(row["recovery_s"] for row in good)
    if not times:
        return f"{len(rows)} faults, none survived with a new generation"
    own = statistics.median(row["engine_s"] for row in good)
    extra = statistics.median(row["recovery_s"] - row["engine_s"] for row in good)
    kept = len([row for row in rows if row["ok"]])
    return (
        f"{kept} of {len(rows)} faults survived ({rows[0]['engine']}, {rows[0]['boxes']} boxes); recovery median "
        f"{statistics.median(times):.1f} s, worst {times[-1]:.1f} s; engine's own start {own:.1f} s; beyond it "
        f"median {extra:.1f} s"
    )


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What was done and how long it took, by fault: seconds of recovery, and of it beyond the engine's own start."""
    by_fault: dict[str, Any] = {}
    for name in sorted(FAULTS):
        good = [row for row in rows if row["fault"] == name and row["ok"] and row["engine_s"]]
        took = [row["recovery_s"] for row in good]
        beyond = [row["recovery_s"] - row["engine_s"] for row in good]
        by_fault[name] = {
            "done": len([row for row in rows if row["fault"] == name]),
            "recovery": [round(statistics.median(took), 1), round(max(took), 1)] if took else [],
            "beyond the engine": [round(statistics.median(beyond), 1), round(max(beyond), 1)] if beyond else [],
        }
    return {
        "engine": rows[0]["engine"],
        "boxes": rows[0]["boxes"],
        "seed": rows[0]["seed"],
        "faults": len(rows),
        "survived": len([row for row in rows if row["ok"]]),
        "said": summary(rows),
        "median and worst, seconds": by_fault,
    }


def main() -> int:
    """Exit status 1 when a fault was not survived."""
    parser = argparse.ArgumentParser(prog="bench.chaos", description="Faults against a lab.")
    parser.add_argument("--boxes", type=int, default=2)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=sorted(READY_S), default="stand-in")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--report", type=Path, nargs="+", help="write bench/results/chaos.json from these files")
    chosen = parser.parse_args()
    if chosen.report:
        machine.write("chaos", {"runs": [table(list(done(file).values())) for file in chosen.report]})
        return 0
    out = chosen.out or ROOT / f".lab/chaos-{chosen.engine}-{chosen.boxes}-{chosen.seed}.jsonl"
    out.parent.mkdir(exist_ok=True)
    rows = run(chosen.boxes, chosen.faults, chosen.seed, chosen.engine, out, chosen.only)
    print(summary(rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
