"""Every locked package resolves for the boxes: linux/aarch64 on CPython 3.11 and 3.12."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_locked_package_has_an_aarch64_wheel() -> None:
    done = subprocess.run(
        [sys.executable, "glm53", "lock", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == 4


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A package that has no wheel for aarch64 is refused by the same resolver call."""
    uv = Path(sys.executable).parent / "uv"
    command = [
        str(uv), "pip", "install", "--dry-run", "--no-deps", "--quiet", "--only-binary", ":all:",
        "--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.12",
        "--target", str(tmp_path), "nvidia-cuda-nvcc-cu12==12.0.76",
    ]  # fmt: skip
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_locks_name_no_index() -> None:
    for lock in ("kit", "dev"):
        assert not re.search(r"https?://|--index|--find-links", (ROOT / "locks" / f"{lock}.txt").read_text())
