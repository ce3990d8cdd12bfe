"""`./glm53 lock [--check]`: write locks/ with uv, or check that every locked package has an aarch64 wheel."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from core.refusal import Refusal
from launcher.environments import locked, python_of
from launcher.paths import ROOT

PLATFORM = "aarch64-manylinux_2_28"  # GB10; wheels of older tags fit it too
PYTHONS = ("3.11", "3.12")


def run(arguments: list[str]) -> int:
    """Exit status of the verb."""
    if arguments not in ([], ["--check"]):
        raise Refusal("lock", " ".join(arguments), "no argument or --check", "./glm53 lock --check")
    return check() if arguments else write()


def write() -> int:
    """Resolve anew; dev is constrained by kit so that both name one version."""
    uv = python_of(locked("dev")).parent / "uv"
    common = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--quiet"]
    for name, extra in (("kit", []), ("dev", ["--extra", "dev", "-c", "locks/kit.txt"])):
        command = [str(uv), "pip", "compile", "pyproject.toml", *extra, *common, "-o", f"locks/{name}.txt"]
        subprocess.run(command, cwd=ROOT, check=True)
    return 0


def check() -> int:
    """Resolve each lock for linux/aarch64 on every supported CPython, without downloading a wheel."""
    uv = python_of(locked("dev")).parent / "uv"
    failed = 0
    for name in ("kit", "dev"):
        for version in PYTHONS:
            with tempfile.TemporaryDirectory() as folder:
                command = [
                    str(uv), "pip", "install", "--dry-run", "--no-deps", "--require-hashes", "--quiet",
                    "--only-binary", ":all:", "--python-platform", PLATFORM,
                    "--python-version", version, "--target", folder, "-r", f"locks/{name}.txt",
                ]  # fmt: skip
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            print(f"locks/{name}.txt on linux/aarch64 CPython {version}: {'ok' if done.returncode == 0 else 'FAIL'}")
            if done.returncode:
                failed += 1
                print(done.stderr.strip(), file=sys.stderr)
    return 1 if failed else 0
