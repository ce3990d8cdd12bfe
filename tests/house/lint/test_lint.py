"""ruff, mypy strict and shellcheck are clean over the whole repository."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    run(str(BIN / "ruff"), "check", "--no-cache", ".", "glm53")


def test_ruff_would_format_nothing() -> None:
    run(str(BIN / "ruff"), "format", "--no-cache", "--check", ".", "glm53")


def test_mypy_strict_finds_nothing() -> None:
    run(str(BIN / "mypy"), "--no-error-summary", ".")


def test_shell_scripts_are_shellcheck_clean() -> None:
    scripts = subprocess.run(
        ["git", "ls-files", "*.sh", ".ci/run"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed on this machine (.ci/run installs it)")
    run(shellcheck, *scripts)
