"""`./glm53 test [--fast|--full] [SUITE...]`: run the suites found under tests/, print minutes, obey the shares.

A suite is a folder tests/<suite>/ with a suite.toml:

    title = "The main job"
    minutes = 12                 # its share in CI on 2 cores; past 1.5x it fails
    [[run]]
    path = "unit"                # a folder of the suite
    fast = true                  # part of --fast
    environment = "dev"          # "dev", or a name that launcher/environments or lab/ can make

Tests marked `full` run only with --full.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from core.refusal import Refusal
from launcher.ending import attended
from launcher.environments import locked, python_of
from launcher.paths import ROOT

# environment name prefix -> (module, function(name) -> folder of the environment)
MAKERS = {"vllm-": ("lab.vllm", "environment"), "kernels": ("bench.kernels_environment", "environment")}
OVER = 1.5


@dataclass(frozen=True)
class Run:
    """One pytest call (`path`) or one command of a suite."""

    path: str
    fast: bool
    environment: str


@dataclass(frozen=True)
class Suite:
    """A folder under tests/ with its share of CI minutes."""

    name: str
    title: str
    minutes: float
    runs: tuple[Run, ...]


def suites() -> tuple[Suite, ...]:
    """All suites, house first, then by name."""
    found = []
    for file in sorted((ROOT / "tests").glob("*/suite.toml")):
        data = tomllib.loads(file.read_text())
        runs = tuple(
            Run(run["path"], bool(run.get("fast", False)), run.get("environment", "dev")) for run in data["run"]
        )
        found.append(Suite(file.parent.name, data["title"], float(data["minutes"]), runs))
    return tuple(sorted(found, key=lambda suite: (suite.name != "house", suite.name)))


def run(arguments: list[str]) -> int:
    """Exit status: 0 when every chosen suite passed within its share."""
    parser = argparse.ArgumentParser(prog="glm53 test", description="Run the test suites.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--fast", action="store_true", help="pure tests and lint, under 3 minutes")
    size.add_argument("--full", action="store_true", help="everything, also what is too long for CI")
    parser.add_argument("suite", nargs="*", help="only these suites")
    options = parser.parse_args(arguments)
    known = {suite.name: suite for suite in suites()}
    for name in options.suite:
        if name not in known:
            raise Refusal("suite", name, "one of " + ", ".join(known), "./glm53 test " + next(iter(known)))
    chosen = [known[name] for name in options.suite] if options.suite else list(known.values())
    prepare_seconds = _prepare()
    report = []
    for suite in chosen:
        report.append((suite, *_run_suite(suite, fast=options.fast, full=options.full)))
    return _summary(report, prepare_seconds, judged=not options.full)


def _prepare() -> float:
    """Make the dev environment, outside of any suite's minutes."""
    started = time.monotonic()
    locked("dev")
    return time.monotonic() - started


def _environment(name: str) -> Path:
    if name in ("dev", "kit"):
        return locked(name)
    for prefix, (module, function) in MAKERS.items():
        if name.startswith(prefix):
            made: Path = getattr(importlib.import_module(module), function)(name)
            return made
    raise AssertionError(f"no environment is called {name}")


def _run_suite(suite: Suite, *, fast: bool, full: bool) -> tuple[list[str], float]:
    """Names of failed runs and the minutes taken."""
    started = time.monotonic()
    failed = []
    for part in suite.runs:
        if fast and not part.fast:
            continue
        print(f"== {suite.name}: {part.path} ({part.environment})", flush=True)
        python = python_of(_environment(part.environment))
        markers = [] if full else ["-m", "not full"]
        command = [str(python), "-m", "pytest", "-q", *markers, f"tests/{suite.name}/{part.path}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        status, early = attended(command, environment, ROOT)
        if early is not None:
            raise early
        if status != 0:  # pytest's 5 (nothing collected) is a failure too: an empty suite proves nothing
            failed.append(f"{part.path} (exit {status})")
    return failed, (time.monotonic() - started) / 60


def _summary(report: list[tuple[Suite, list[str], float]], prepare_seconds: float, *, judged: bool) -> int:
    print(f"\nprepared in {prepare_seconds / 60:.1f} min; minutes per suite (share, on 2 cores):")
    bad = 0
    for suite, failed, minutes in report:
        late = judged and minutes > OVER * suite.minutes
        verdict = "FAIL: " + ", ".join(failed) if failed else "FAIL: over 1.5x its share" if late else "passed"
        bad += bool(failed) or late
        print(f"  {suite.name:<10} {minutes:5.1f}  ({suite.minutes:g})  {verdict}")
    print(f"{len(report) - bad} passed, {bad} failed", flush=True)
    sys.stdout.flush()
    return 1 if bad else 0
