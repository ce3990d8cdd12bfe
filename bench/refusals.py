"""How long refusals take: `python -m bench.refusals [local|group]...`; writes bench/results/refusals.json.

local: a fault of the box's own, from process start to exit, on one kit alone.
group: a fault between boxes, from the last box's page being up (the others can see it) until every kit has said
it; all then end with status 2. The bound is 2 s for both, each fault several times. No vLLM starts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.machine import machine
from core.refusal import Refusal
from lab import cluster, watch
from lab.processes import wait_until
from lab.providers import process
from lab.state import Lab
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
# What a group must refuse: number of boxes, knobs, and what every box must say (the setting; it names boxes too).
# The last box starts LAST_S after the others. More boxes than TP are not here: two that have agreed serve on, and
# only the third refuses (tests/main/lab/test_refusals.py). Nor is one address of two boxes: a box whose page is not at
# its own address refuses that alone and ends here; tests/main/kits tries it with boxes that stay.
GROUP: dict[str, tuple[int, dict[str, str], str]] = {
    "two heads": (2, {"box1.ROLE": "head", "box2.ROLE": "head"}, r"ROLE: seen two heads"),
    "ROLE on one box only": (2, {"box1.ROLE": "head"}, r"ROLE: .*on all boxes or on none"),
    "no head": (2, {"ROLE": "worker"}, r"ROLE: seen worker on all 2 boxes"),
    "HEAD_HOST on one box only": (2, {"box1.HEAD_HOST": "{box1}"}, r"HEAD_HOST: .*on all boxes or on none"),
    "two HEAD_HOSTs": (2, {"box1.HEAD_HOST": "{box1}", "box2.HEAD_HOST": "{box2}"}, r"HEAD_HOST: seen two heads"),
    "ROLE=head elsewhere than HEAD_HOST": (
        2,
        {"HEAD_HOST": "{box1}", "box1.ROLE": "worker", "box2.ROLE": "head"},
        r"ROLE: seen .* while HEAD_HOST=",
    ),
    "HEAD_HOST of nobody": (2, {"HEAD_HOST": "127.255.0.1"}, r"HEAD_HOST: seen 127\.255\.0\.1"),
    "two TPs": (2, {"box1.TP": "2", "box2.TP": "3"}, r"TP: seen 2 on .*; 3 on "),
    "two plans": (
        2,
        {"box1.MAX_MODEL_LEN": "512", "box2.MAX_MODEL_LEN": "768"},
        r"MAX_MODEL_LEN: seen 512 on .*; 768 on ",
    ),
}
GROUP_LAB = "bench-refusals"
LAST_S = 2.0
LONGEST_S = 30.0
ROUNDS = {"local": 5, "group": 3}


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


def local() -> dict[str, list[float]]:
    """Fault -> seconds, one kit alone."""
    with tempfile.TemporaryDirectory() as folder:
        once({"TP": "5"}, folder)  # compiles the kit's files
        return {name: [once(knobs, folder) for _ in range(ROUNDS["local"])] for name, knobs in FAULTS.items()}


def group_once(name: str) -> float:
    """Seconds from the last box being seen until all kits of the lab have said so; Refusal when one does not."""
    count, knobs, said = GROUP[name]
    lab, held = cluster.create(GROUP_LAB, count, knobs)
    try:
        with held:
            cluster.start_all(lab, held, [0.0] * (count - 1) + [LAST_S], lambda _: None)
            last = lab.boxes[-1]

            def seen() -> bool:
                page = watch.get(last.address, lab.status_port, "/healthz", 1)
                return page is not None or not process.kept(last).alive

            if not wait_until(seen, LONGEST_S, 0.01):
                raise Refusal(name, "no page of the last box", "a page", "Read its kit.log in .lab/.")
            begin = time.monotonic()
            wait_until(lambda: all(re.search(said, told(log)) for log in logs(lab).values()), LONGEST_S, 0.01)
            seconds = time.monotonic() - begin
            wait_until(lambda: all(process.kept(box).state == "refused" for box in lab.boxes), LONGEST_S, 0.02)
            check_said(name, lab, said)
            return seconds
    finally:
        cluster.down(lab, grace_s=5)


def logs(lab: Lab) -> dict[str, str]:
    """What each box's kit wrote, by the box's name."""
    return {box.name: (box.path / "kit.log").read_text() for box in lab.boxes if (box.path / "kit.log").exists()}


def told(log: str) -> str:
    """The refusals among it."""
    return "\n".join(match.group(0) for match in watch.TOLD.finditer(log))


def check_said(name: str, lab: Lab, said: str) -> None:
    """Refusal when a box did not refuse with these words, did not end with status 2, started vLLM or broke."""
    expected = f"status 2 after {said!r}, without vLLM or a traceback"
    states = {box.name: process.kept(box).state for box in lab.boxes}
    for box, log in logs(lab).items():
        wrong = "vllm.entrypoints" in log or "Traceback" in log or states[box] != "refused"
        if wrong or not re.search(said, told(log)):
            raise Refusal(name, f"{box} {states[box]}: {told(log) or log[-300:]}", expected, "Read its log.")


def group() -> dict[str, list[float]]:
    """Fault -> seconds, a lab for each."""
    return {name: [group_once(name) for _ in range(ROUNDS["group"])] for name in GROUP}


KINDS: dict[str, Callable[[], dict[str, list[float]]]] = {"local": local, "group": group}


def main() -> None:
    """Measure, print a line a fault, write the JSON; what is not measured now keeps its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(sorted(KINDS))}; none named: all")
    file = Path(ROOT) / "bench/results/refusals.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    result = {name: before[name] for name in KINDS if name in before}
    kinds = parser.parse_args().kinds or sorted(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: no kind; expected {', '.join(sorted(KINDS))}")
    for kind in kinds:
        rows = {n: {"median_s": statistics.median(times), "worst_s": max(times)} for n, times in KINDS[kind]().items()}
        for name, row in rows.items():
            print(f"{name:<36} median {row['median_s']:.2f} s  worst {row['worst_s']:.2f} s", flush=True)
        result[kind] = {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "rounds": ROUNDS[kind],
            "faults": rows,
        }
    file.write_text(json.dumps({"bound_s": 2.0, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
