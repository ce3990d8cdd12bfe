"""Which image this is, as the running kit and its page tell it. Outside an image there is nothing to tell."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KIT = Path(__file__).resolve().parent.parent
FILE = KIT / "image.json"


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
    """kit, base, base_digest, versions, patches, patched_tree, flashkda; empty outside an image."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return found
