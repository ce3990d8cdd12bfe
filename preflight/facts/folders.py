"""Who owns a folder and what in it this process cannot write: two levels deep, so that it takes no time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST = 2000  # entries looked at; a cache has a few dozen folders at the top
SHOWN = 20


@dataclass(frozen=True)
class Folder:
    """A folder: its owner, the user of this process, and the first entries that this user cannot write."""

    path: str
    owner: int
    user: int
    locked: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Folder:
        """The folder of a recording. Raises ValueError, KeyError or TypeError on anything else."""
        return cls(
            path=str(data["path"]),
            owner=int(data["owner"]),
            user=int(data["user"]),
            locked=tuple(str(one) for one in data["locked"]),
        )


def folders_of(paths: Sequence[str]) -> Iterator[Folder]:
    """The folders among `paths` that exist; "/" is nobody's business."""
    for text in dict.fromkeys(paths):
        path = Path(text)
        if not text or text == "/" or not path.is_dir():
            continue
        try:
            owner = path.stat().st_uid
        except OSError:
            continue
        locked = [name for name in _entries(path) if not os.access(path / name, os.W_OK, effective_ids=True)]
        yield Folder(text, owner, os.geteuid(), tuple(locked[:SHOWN]))


def _entries(path: Path) -> list[str]:
    """The folder itself ("."), its entries and theirs, relative to it."""
    found = ["."]
    try:
        for one in sorted(path.iterdir()):
            found.append(one.name)
            if one.is_dir() and not one.is_symlink() and len(found) < MOST:
                found += [f"{one.name}/{below.name}" for below in sorted(one.iterdir())]
            if len(found) >= MOST:
                break
    except OSError:
        pass  # a folder that cannot be read is among those that cannot be written
    return found[:MOST]
