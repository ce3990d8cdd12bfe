"""Chaos on a lab: every fault ends with all boxes serving a right answer, without a hand, and nothing is left.

`stand-in` is lab/engine.py, `vllm` the real one. The long runs keep what is done in .lab/ and go on where they stopped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import chaos, recovery
from bench.faults import PROVIDERS
from lab.state import Box, Lab
from launcher.paths import ROOT


def survive(boxes: int, faults: int, seed: int, engine: str, out: Path) -> None:
    rows = chaos.run(boxes, faults, seed, engine, out)
    print(recovery.summary(rows))
    assert len(rows) == faults
    assert [row for row in rows if not row["ok"]] == []


@pytest.mark.parametrize(("boxes", "seed"), [(2, 21), (3, 26)])
def test_twelve_faults_on_the_stand_in(tmp_path: Path, boxes: int, seed: int) -> None:
    survive(boxes, 6, seed, "stand-in", tmp_path / "out.jsonl")


def test_two_faults_on_real_vllm(tmp_path: Path) -> None:
    survive(2, 2, 3, "vllm", tmp_path / "out.jsonl")


@pytest.mark.full
@pytest.mark.parametrize(("boxes", "faults"), [(2, 20), (4, 10)])
def test_the_long_runs_on_real_vllm(boxes: int, faults: int) -> None:
    (ROOT / ".lab").mkdir(exist_ok=True)
    survive(boxes, faults, 7, "vllm", ROOT / f".lab/chaos-vllm-{boxes}-7.jsonl")


@pytest.mark.full
@pytest.mark.parametrize(("boxes", "faults"), [(2, 120), (3, 120), (4, 60)])
def test_the_long_runs_on_the_stand_in_with_networks_that_are_cut(boxes: int, faults: int) -> None:
    """In a process of its own: it has to enter a network of its own. Root only, and says so."""
    argv = [sys.executable, "-m", "bench.chaos", "--provider", "netns", "--boxes", str(boxes), "--seed", "7"]
    done = subprocess.run([*argv, "--faults", str(faults)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_what_a_fault_does_follows_from_seed_and_number_alone(provider: str) -> None:
    boxes = tuple(Box(n, f"box{n}", f"127.0.1.{n}", "") for n in (1, 2, 3))
    lab = Lab("x", "x", 1, True, 1, 1, {}, boxes, provider)
    plans = [chaos.plan(lab, 5, number) for number in range(200)]
    assert plans == [chaos.plan(lab, 5, number) for number in range(200)]
    assert {name for name, _ in plans} == set(PROVIDERS[provider])
    assert {len(hit) for _, hit in plans} == {1, 2, 3}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("".join(json.dumps({"number": number, "ok": True}) + "\n" for number in range(3)))
    assert len(chaos.run(2, 3, 1, "stand-in", out)) == 3  # nothing is missing: no lab is started
