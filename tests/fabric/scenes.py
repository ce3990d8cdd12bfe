"""From a described box to what the kit makes of it: the tree is written, surveyed, checked."""

from __future__ import annotations

import shutil
from pathlib import Path

from core.row import Row
from preflight.checks import Scene, Wanted, preflight
from preflight.facts.survey import survey
from tests.fixtures.boxes_tree import GIB, BoxSpec, write

WANTED = Wanted(boxes=4, kv_bytes=26 * GIB, weight_bytes=181 * GIB, model="/models/glm", cache="/cache", logs="/logs")


def scene(spec: BoxSpec, root: Path, wanted: Wanted = WANTED) -> Scene:
    """The box's survey and what is wanted of it; the tree is gone again afterwards."""
    try:
        return Scene(survey(write(spec, root)), wanted)
    finally:
        shutil.rmtree(root)


def faults(rows: tuple[Row, ...]) -> list[Row]:
    """What a user would see as wrong, in the order of the table."""
    return [row for row in rows if row.level in ("FAIL", "WARN")]


def check(spec: BoxSpec, root: Path, wanted: Wanted = WANTED) -> list[Row]:
    """The faults preflight names on this box."""
    return faults(preflight(scene(spec, root, wanted)))
