"""Which files a tree holds: a sha256 a line, so that a later tree can be compared with it by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path


def of(root: Path, packages: Iterable[str]) -> dict[str, str]:
    """Path relative to `root` -> sha256, of every file of some packages; bytecode is left out."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                with path.open("rb") as file:
                    found[str(path.relative_to(root))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def text(table: Mapping[str, str]) -> str:
    """As `sha256sum` writes it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(table.items()))


def parse(lines: str) -> dict[str, str]:
    """The reverse of `text`."""
    pairs = (line.split("  ", 1) for line in lines.splitlines() if line)
    return {name: digest for digest, name in pairs}


def fingerprint(table: Mapping[str, str]) -> str:
    """16 hex digits over names and contents."""
    return hashlib.sha256(text(table).encode()).hexdigest()[:16]
