"""Looking at an image from outside: its record, its patches, and every file that is not base + patches."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from image import manifest
from image.identity import image_id
from image.patches import PATCHES
from image.patching import Patch, Report, Tree, changes, check

RECORD = "/opt/glm53/image.json"
MANIFEST = "/opt/glm53/base-manifest.txt"


def inspect(reference: str) -> dict[str, Any]:
    """The image's id (and Docker's own), labels and the record that verify_base wrote into it."""
    said = docker("image", "inspect", reference)
    found = json.loads(said)[0]
    labels = {name: value for name, value in (found["Config"]["Labels"] or {}).items() if name.startswith("org.")}
    with tempfile.TemporaryDirectory(prefix="glm53-") as folder:
        extract(reference, {RECORD: Path(folder) / "image.json"})
        record = json.loads((Path(folder) / "image.json").read_text())
    return {"id": image_id(said), "docker_id": found["Id"], "created": found["Created"], "labels": labels, **record}


@dataclass(frozen=True)
class Looked:
    """How patches stand inside an image whose base has `files` files of vLLM and FlashInfer.

    foreign  which files are not base + patches, by name; None where a drift forbids to say
    """

    report: Report
    files: int
    foreign: list[str] | None


def check_image(reference: str) -> Looked:
    """The patches inside an image, and the files that differ. Raises Refusal when it is no image of this kit."""
    with tempfile.TemporaryDirectory(prefix="glm53-") as name:
        folder = Path(name)
        extract(reference, {RECORD: folder / "image.json", MANIFEST: folder / "base.txt"})
        site = json.loads((folder / "image.json").read_text())["site_packages"]
        base = manifest.parse((folder / "base.txt").read_text())
        packages = sorted({file.split("/")[0] for file in base})
        extract(reference, {f"{site}/{package}": folder / "tree" / package for package in packages})
        tree = Tree(folder / "tree")
        report = check(tree, PATCHES)
        return Looked(report, len(base), None if report.drifted else differing(tree, base, PATCHES))


def differing(tree: Tree, base: Mapping[str, str], patches: Sequence[Patch]) -> list[str]:
    """Files that are not what the base held with the patches on: changed, missing, or not from the base."""
    restored = changes(tree, check(tree, patches), remove=True)
    found = manifest.of(tree.root, sorted({file.split("/")[0] for file in base}))
    before = manifest_of_bytes({file: content for file, content in restored.items() if content is not None})
    lines = []
    for file, digest in sorted(base.items()):
        now = before.get(file, found.get(file))
        if now is None:
            lines.append(f"missing: {file}")
        elif now != digest:
            lines.append(f"differs: {file}")
    added = {file for file, content in restored.items() if content is None}
    lines += [f"not from the base: {file}" for file in sorted(set(found) - set(base) - added)]
    return lines


def manifest_of_bytes(files: Mapping[str, bytes]) -> dict[str, str]:
    """Path -> sha256 of contents in memory."""
    import hashlib

    return {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}


def extract(reference: str, places: Mapping[str, Path]) -> None:
    """Copy paths out of an image that is never run. Raises Refusal when it is no image of this kit."""
    container = docker("create", reference).strip()
    try:
        for source, target in places.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            docker("cp", f"{container}:{source}", str(target))
    finally:
        docker("rm", container)


def docker(*words: str) -> str:
    """Output of a docker command. Raises Refusal with its last line when it fails."""
    if shutil.which("docker") is None:
        raise Refusal("Docker", "no docker command", "Docker and its engine", "Install Docker, or name a folder.")
    done = subprocess.run(("docker", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise Refusal("image", last, "an image built by image/build.sh, on this host", "image/build.sh --dry-run")
    return done.stdout
