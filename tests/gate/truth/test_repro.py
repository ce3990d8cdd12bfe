"""The repros find what they are for on a server that does it, and nothing on one that does not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gate.repro.asking import report
from tests.gate.harness import ROOT, simulator

NAMES = ("greedy_nondeterminism", "toolcall_corruption")


def repro(name: str, base: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", f"gate.repro.{name}", "--url", base, "--runs", "8", "--tokens", "2000"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("how", "status"), [({}, 0), ({"random_order": True}, 1)])
def test_only_an_unsteady_server_is_accused(name: str, how: dict[str, Any], status: int) -> None:
    with simulator(**how) as base:
        found, said = repro(name, base)
    assert found == status, said
    assert ("x from character" in said) == bool(status)
    assert ("0 of 8 runs diverge" in said) != bool(status)


def test_no_server_is_status_2_and_a_line() -> None:
    status, said = repro(NAMES[0], "http://127.0.0.1:9")
    assert status == 2
    assert "cannot connect" in said


def test_the_report_counts_from_the_majority() -> None:
    assert report(["abc", "abd", "abc"])[0].startswith("1 of 3 runs diverge")
    assert report(["abc", "abd", "abc"])[1] == "  1 x from character 2: 'd' for 'c'"
