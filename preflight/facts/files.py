"""The files of a model folder: what its index names, how long they must be, and what their hashes should be.

Hashes are read whole (minutes for 181 GiB) and only when asked for; the pages that brings into the cache are dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from preflight.facts.sysfs import read

INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 256 << 20
BLOCK = 8 << 20
THREADS = 4
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_GIT = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True)
class Hashed:
    """One file: its sha256, and the hash its download recorded ("" where nothing did); `error` when unreadable."""

    name: str
    digest: str
    expected: str = ""
    matches: bool = True
    error: str = ""


def missing(folder: Path) -> list[str]:
    """Shards that the index names and that are absent or empty. Without an index: any safetensors file will do."""
    try:
        names = _shards(folder)
    except FileNotFoundError:
        return [] if any(folder.glob("*.safetensors")) else ["*.safetensors"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [f"a readable {INDEX}"]
    return [name for name in names if not _size(folder / name)]


def cut_short(folder: Path) -> list[str]:
    """Files that are shorter than the last tensor of their own header says: a few reads a file."""
    try:
        return [path.name for path in sorted(folder.glob("*.safetensors")) if _short(path)]
    except OSError:
        return []


def _shards(folder: Path) -> list[str]:
    index = json.loads((folder / INDEX).read_text())
    return sorted({str(name) for name in index["weight_map"].values()})


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _short(path: Path) -> bool:
    """False for what is no safetensors file: that is vLLM's to say, and an empty one is `missing`."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= LARGEST_HEADER:
                return False
            if 8 + length > size:
                return size >= 8
            header = json.loads(file.read(length))
        ends = [int(one["data_offsets"][1]) for name, one in header.items() if name != "__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return False
    return 8 + length + max(ends, default=0) > size


def hashes(folder: Path, say: Callable[[str], None] = lambda line: None) -> tuple[Hashed, ...]:
    """Every file of a model folder against what its download recorded, by name. `say` gets a line a finished file."""
    paths = sorted(path for path in _files(folder) if path.is_file())
    total = sum(_size(path) for path in paths)
    found, done = [], 0
    with ThreadPoolExecutor(THREADS) as pool:
        for path, one in zip(paths, pool.map(lambda path: _hash(folder, path), paths), strict=True):
            found.append(one)
            done += _size(path)
            say(f"{one.name} ({done * 100 // max(1, total)} % of {total >> 30} GiB)")
    return tuple(found)


def together(found: tuple[Hashed, ...]) -> str:
    """16 hex digits over names and contents: equal on two boxes that hold the same files."""
    text = "".join(f"{one.digest}  {one.name}\n" for one in found)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    """Plain files at the top of the folder, but for hidden ones."""
    try:
        yield from (path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return


def _hash(folder: Path, path: Path) -> Hashed:
    expected = recorded_hash(folder, path)
    kinds = [hashlib.sha256()]
    try:
        with path.open("rb", buffering=0) as file:
            if _GIT.match(expected):  # a small file: git's own hash of it
                kinds.append(hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False))
            while block := file.read(BLOCK):
                for kind in kinds:
                    kind.update(block)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        return Hashed(path.name, "", expected, False, error.strerror or "unreadable")
    return Hashed(path.name, kinds[0].hexdigest(), expected, not expected or kinds[-1].hexdigest() == expected)


def recorded_hash(folder: Path, path: Path) -> str:
    """The hash that `hf download` wrote down: in its metadata beside a local folder, or as the name of a cached blob.

    sha256 (64 hex) of a large file, git's blob hash (40 hex) of a small one, "" where nothing was recorded.
    """
    lines = read(folder / f".cache/huggingface/download/{path.name}.metadata").split()
    told = lines[1].strip('"') if len(lines) > 1 else path.resolve().name if path.is_symlink() else ""
    return told if _SHA256.match(told) or _GIT.match(told) else ""
