"""Runs tests/image/behaviour inside real vLLM, once a release: the environment of 0.32.0, the tree of each.

A tree must be on the path before vLLM is imported, so each release is a process of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.paths import ROOT, cache
from tests.image.published import apply, copy_of, vllm_tree

RUNNABLE = ("0.30.0", "0.31.0", "0.32.0")
ONLY_PYTHON = "0.33.0"  # without a CPU wheel: its Python code is run, beside metadata that make the platform a CPU
BEHAVIOUR = ROOT / "tests" / "image" / "behaviour"


@pytest.fixture(scope="module")
def patched() -> Iterator[Path]:
    """Patched copies of the trees, on the cache's file system so that they cost no copying; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="patched-", dir=cache() / "trees"))
    for version in (*RUNNABLE, ONLY_PYTHON):
        apply(copy_of(vllm_tree(version), folder / version))
    yield folder
    shutil.rmtree(folder)


# 0.30.0 is a tree only, no base: in CI just what only it needs from us.
ONLY_0_30 = ("test_kpool.py", "test_loading.py")


def behave(version: str, patched: Path, files: tuple[str, ...] = ()) -> None:
    """Run behaviour tests (all, or some files) with one release's patched tree."""
    paths = [str(patched / version), str(ROOT)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "GLM53_STOCK_TREE": str(vllm_tree(version)),
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        "TRITON_INTERPRET": "1",  # before Triton is imported: its own library functions are decorated then
    }
    wanted = [str(BEHAVIOUR / file) for file in files] or [str(BEHAVIOUR)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *wanted]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=290)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("version", ["0.32.0", "0.31.0"])
def test_behaviour(version: str, patched: Path) -> None:
    behave(version, patched)


def test_what_only_the_oldest_tree_needs(patched: Path) -> None:
    behave("0.30.0", patched, ONLY_0_30)


@pytest.mark.full
def test_behaviour_of_a_release_without_a_cpu_wheel(patched: Path) -> None:
    info = patched / ONLY_PYTHON / f"vllm-{ONLY_PYTHON}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {ONLY_PYTHON}+cpu\n")
    behave(ONLY_PYTHON, patched)


@pytest.mark.full
def test_behaviour_of_the_oldest_tree(patched: Path) -> None:
    behave("0.30.0", patched)
