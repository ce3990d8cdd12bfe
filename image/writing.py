"""From a report without drift to changed files: worked out in memory, confirmed, then written all or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from core.refusal import Refusal
from image.judging import judge, place_of
from image.patch import Report, State
from image.scopes import SourceFile, Span
from image.tree import Tree


def changes(tree: Tree, report: Report, *, remove: bool = False) -> dict[str, bytes | None]:
    """File -> new content (None: delete) that applies, or removes, every patch of a report without drift.

    Raises Refusal when a patch drifted: then nothing may be written.
    """
    if report.drifted:
        names = ", ".join(verdict.patch.name for verdict in report.drifted)
        raise Refusal("patches", f"drift in {names}", "a tree every patch fits", "See docs/rebasing.md.")
    wanted: State = "applied" if remove else "needed"
    splices: dict[str, list[tuple[Span, str]]] = {}
    result: dict[str, bytes | None] = {}
    for verdict in report.verdicts:
        if verdict.state != wanted or verdict.variant is None:
            continue
        for edit in verdict.variant.edits:
            text = edit.anchor if remove else edit.replacement
            splices.setdefault(edit.file, []).append((place_of(tree, edit), text))
        for addition in verdict.variant.additions:
            result[addition.file] = None if remove else addition.content()
    for file, parts in splices.items():
        source = tree.read(file)
        assert isinstance(source, SourceFile)
        text = source.text
        for (start, end), new in sorted(parts, reverse=True):
            text = text[:start] + new + text[end:]
        if file.endswith(".py"):
            compile(text, file, "exec")
        result[file] = text.encode()
    _confirm(tree.holding(result), report, wanted)
    return result


def _confirm(after: Tree, report: Report, wanted: State) -> None:
    """Every patch that was to change must have changed, and no other: edits that disturb each other are our defect."""
    reached = {"needed": "applied", "applied": "needed"}[wanted]
    for verdict in report.verdicts:
        expected = reached if verdict.state == wanted else verdict.state
        found = judge(after, verdict.patch)
        if found.state != expected:
            reasons = "; ".join(found.reasons)
            raise AssertionError(f"{verdict.patch.name} would be {found.state!r}, not {expected!r}: {reasons}")


def write(tree: Tree, result: Mapping[str, bytes | None]) -> None:
    """Put all files in place, or none: each is written beside its place first, then renamed; a failure is undone, and
    so is an interruption.

    Raises Refusal when a place is not writable, before anything is changed.
    """
    for file in result:
        path = tree.root / file
        for place in (path, path.parent) if path.exists() else (path.parent,):
            if not place.stat().st_mode & 0o200 or not os.access(place, os.W_OK):
                raise Refusal("patches", f"{place} is read-only", "a tree that may be written", f"chmod u+w {place}")
    before = {file: (tree.root / file).read_bytes() if (tree.root / file).exists() else None for file in result}
    fresh: dict[str, Path] = {}
    done: list[str] = []
    try:
        for file, content in result.items():
            if content is not None:
                fresh[file] = _beside(tree.root / file, content)
        for file, content in result.items():
            if content is None:
                (tree.root / file).unlink()
            else:
                fresh[file].replace(tree.root / file)
            done.append(file)
    except BaseException:  # Ctrl-C too: half of the files patched would be neither tree
        for file in reversed(done):
            old = before[file]
            if old is None:
                (tree.root / file).unlink(missing_ok=True)
            else:
                _beside(tree.root / file, old).replace(tree.root / file)
        raise
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)


def _beside(path: Path, content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".glm53-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)
