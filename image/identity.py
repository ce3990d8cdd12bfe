"""Which image this is, as the running kit and its page tell it. Outside an image there is nothing to tell."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KIT = Path(__file__).resolve().parent.parent
FILE = KIT / "image.json"
# The image's own id, which it cannot hold: ./glm53 asks Docker about the image and hands it in.
IMAGE_ID = "GLM53_IMAGE_ID"
# What of an image's configuration decides what runs; how it is written down differs between Docker's image stores.
RUNS = ("Cmd", "Entrypoint", "Env", "Labels", "StopSignal", "User", "Volumes", "WorkingDir")
TOLD = ("kit", "base", "base_digest", "patched_tree", "flashkda")


def image_id(inspected: str) -> str:
    """ "sha256:..." of an image, from what `docker image inspect REFERENCE` printed; the same in both image stores.

    Docker's own Id is the digest of the configuration in the classic store and of the manifest in containerd's. Equal
    in both are the digests of the layers' contents and what the configuration says, and this one is made of them.
    Raises ValueError for text that is no answer of `docker image inspect`.
    """
    try:
        (found,) = json.loads(inspected)
        layers, config = found["RootFS"]["Layers"], found["Config"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"not what docker image inspect prints: {inspected[:80]!r}") from None
    # One store leaves out what is empty where the other writes "", null or [].
    runs = {name: config[name] for name in RUNS if config.get(name)}
    same = {"layers": layers, "os": found["Os"], "architecture": found["Architecture"], "config": runs}
    return "sha256:" + hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def kit_version(root: Path = KIT) -> str:
    """The version of pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def write(found: Mapping[str, Any], file: Path = FILE) -> None:
    """Record what verify_base found, with the kit's version and the FlashKDA that was taken over."""
    packed = file.parent / "flashkda.json"
    flashkda = json.loads(packed.read_text()) if packed.is_file() else None
    commit = flashkda["commit"] if flashkda else "the base's own"
    file.write_text(json.dumps({"kit": kit_version(), "flashkda": commit, **found}, indent=2) + "\n")


def read(file: Path = FILE) -> dict[str, Any]:
    """kit, base, base_digest, versions, patches, overlays, patched_tree, flashkda; empty outside an image.

    Raises OSError or ValueError for a record that is there and cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return found


def site_packages(file: Path = FILE) -> Path | None:
    """The folder that holds vLLM in this image; None outside an image, or in one whose record cannot be read."""
    try:
        found = read(file).get("site_packages")
    except (OSError, ValueError):
        return None
    return Path(found) if found else None


def report(environ: Mapping[str, str], file: Path = FILE) -> dict[str, str]:
    """What a running box says of its image: `id` ("" when nobody handed it in) and TOLD; empty outside an image.

    A record that cannot be read is told as it is: the page must come up in a damaged image too.
    """
    try:
        record = read(file)
    except (OSError, ValueError) as error:
        record = {"kit": f"{file.name} cannot be read: {error}"}
    if not record:
        return {}
    return {"id": environ.get(IMAGE_ID, ""), **{name: str(record.get(name, "")) for name in TOLD}}


def compared(report: Mapping[str, str]) -> dict[str, str]:
    """What must be equal on all boxes, one short text a name, for the fabric's comparison; empty texts left out."""
    short = report.get("id", "").removeprefix("sha256:")[:12]
    found = {"image": short, "patched tree": report.get("patched_tree", ""), "FlashKDA": report.get("flashkda", "")}
    return {name: text for name, text in found.items() if text}
