"""What the Dockerfile runs inside the base: patch it, take a packed FlashKDA over, link CUDA headers.

python3 -m image.install patches --out DIR      changed files under DIR, and the base's manifest beside the kit
python3 -m image.install flashkda --packed DIR --out DIR
python3 -m image.install headers
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from core.refusal import Refusal
from image import cuda_headers, manifest
from image.patches import PATCHES
from image.patching import Tree, changes, check
from image.report import table

KIT = Path("opt/glm53")
MANIFEST = KIT / "base-manifest.txt"


def site_packages() -> Path:
    """Where this Python finds vllm, without importing it. Raises Refusal when it has none."""
    for folder in map(Path, sys.path):
        if (folder / "vllm" / "__init__.py").is_file() and folder.name in ("site-packages", "dist-packages"):
            return folder
    raise Refusal("vllm", "none on this Python's path", "a base image with vLLM", "Choose a base of image/bases.toml.")


def patches(out: Path) -> int:
    """Write every file the patches change or add under `out`, at its place; 1 on drift."""
    root = site_packages()
    tree = Tree(root)
    report = check(tree, PATCHES)
    print("\n".join(table(report)))
    if report.drifted:
        return 1
    for file, content in changes(tree, report).items():
        assert content is not None
        target = out / root.relative_to("/") / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if (root / file).exists():
            shutil.copymode(root / file, target)
    (out / MANIFEST).parent.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).write_text(manifest.text(manifest.of(root, ("vllm", "flashinfer"))))
    return 0


def flashkda(packed: Path, out: Path) -> int:
    """Check a packed FlashKDA against this base and put it under `out`; the empty variant leaves an empty folder."""
    out.mkdir(parents=True, exist_ok=True)
    if (packed / "CHOSEN").read_text().strip() == "empty":
        print("FlashKDA: the empty variant, the base keeps its own")
        return 0
    from image.flashkda import artefact

    found = artefact.load(packed)
    misfit = artefact.misfits(found, artefact.here())
    if misfit:
        print("FlashKDA: the packed build does not fit this base: " + "; ".join(misfit))
        return 1
    root = site_packages()
    for name in found.files:
        target = out / root.relative_to("/") / "vllm" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(packed / name, target)
    record = out / KIT / "flashkda.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(packed / artefact.NAME, record)
    return 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("patches", "flashkda", "headers"))
    parser.add_argument("--out", type=Path, default=Path("/"))
    parser.add_argument("--packed", type=Path, default=Path("/packed"))
    options = parser.parse_args()
    if options.action == "patches":
        return patches(options.out)
    if options.action == "flashkda":
        return flashkda(options.packed, options.out)
    for line in cuda_headers.link(site_packages(), Path("/usr/local/cuda")):
        print(line)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
