"""The named bases of image/bases.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.refusal import Refusal

FILE = Path(__file__).parent / "bases.toml"


@dataclass(frozen=True)
class Base:
    """One image to build from; see bases.toml for the words. `local`: made here, never pulled."""

    name: str
    image: str
    vllm: str
    python: str
    proven: str
    flashkda: str
    disk_gib: int
    note: str = ""
    local: bool = False


@dataclass(frozen=True)
class Bases:
    """All bases by name, and the one taken when none is named."""

    table: Mapping[str, Base]
    default: str


def load(file: Path = FILE) -> Bases:
    """Read bases.toml."""
    data = tomllib.loads(file.read_text())
    table = {entry["name"]: Base(**entry) for entry in data["base"]}
    return Bases(table, data["default"])


def choose(bases: Bases, wanted: str, *, force: bool) -> Base:
    """A base by its name or its image. With `force` any image reference; Refusal otherwise."""
    if not wanted:
        return bases.table[bases.default]
    for base in bases.table.values():
        if wanted in (base.name, base.image):
            return base
    if not force:
        known = ", ".join(bases.table)
        raise Refusal("BASE", wanted, f"one of {known}", "Name one of them, or --force to try another image.")
    return Base(wanted, wanted, "", "3.12", "nothing", "bundled", 60, note="not a known base")


def repository(image: str) -> str:
    """An image reference without its tag and digest; the port of a registry stays."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def releases(bases: Bases) -> str:
    """The names to try when a pull fails."""
    return ", ".join(name for name, base in bases.table.items() if name.startswith("v") and not base.local)
