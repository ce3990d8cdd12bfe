"""`./glm53 doctor --deep`: every byte of the model's files against what their download recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from core.row import Row
from preflight.checks.scene import Wanted, link_to
from preflight.facts import files

NAME = "model files"


def deep(wanted: Wanted, say: Callable[[str], None] = lambda line: None) -> Iterator[Row]:
    """Rows about the checkpoint's and the drafter's bytes; `say` gets a line a finished file."""
    for what, text in (("checkpoint", wanted.model), ("drafter", wanted.drafter)):
        if text and Path(text).is_dir():
            for one in _rows(what, files.hashes(Path(text), say), text):
                yield Row(NAME, one.level, one.seen, one.expected, one.cure, link_to(NAME))


def _rows(what: str, found: tuple[files.Hashed, ...], folder: str) -> Iterator[Row]:
    for one in found:
        if one.error:
            cure = "Look at the disk: sudo dmesg | tail; then download that file again."
            yield Row("", "FAIL", f"{what}: {one.name}: {one.error}", "a file that can be read", cure)
        elif not one.matches:
            cure = f"Delete {folder}/{one.name} and download again; if it comes back, look at disk and memory."
            seen = f"{what}: {one.name} is {one.digest[:16]}, its download recorded {one.expected[:16]}"
            yield Row("", "FAIL", seen, "the bytes that were published", cure)
    bare = sum(1 for one in found if not one.expected)
    seen = f"{what}: {len(found)} files, all together {files.together(found)}"
    seen += f"; {bare} without a recorded hash: compare that number between the boxes" if bare else ""
    yield Row("", "info", seen)
