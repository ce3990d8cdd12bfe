"""Files that are truncated, huge, binary, gone or folders: preflight ends in rows, never in a traceback."""

import os
import random
from pathlib import Path

import pytest

from preflight.checks import Scene, preflight, verdict
from preflight.facts.survey import survey
from tests.fabric.scenes import WANTED
from tests.fixtures.boxes_tree import files_of, group, write


def _spoilt(rng: random.Random, text: str) -> bytes:
    data = text.encode()
    match rng.randrange(6):
        case 0:
            return data[: rng.randint(0, len(data))]
        case 1:
            return os.urandom(rng.randint(0, 300))
        case 2:
            return (data or b"1") * rng.choice([2, 50, 2000])
        case 3:
            return b"9" * rng.choice([1, 30, 6000])
        case 4:
            return "\u00b2\u0664 -1 nan inf".encode()
        case _:
            return b""


def garbage(first: int, count: int, trees: Path) -> None:
    """Trees from seed `first` on, with files truncated, huge, binary, gone, folders or locked: nothing may raise."""
    spec = group("switch", 2, random.Random(1), plain=True)[0]
    base = files_of(spec)
    root = write(spec, trees / "box")
    for seed in range(first, first + count):
        rng = random.Random(seed)
        spoilt = rng.sample(sorted(base), rng.randint(1, 12))
        for name in spoilt:
            path = root / name
            if rng.random() < 0.15:
                path.unlink()
                if rng.random() < 0.5:
                    path.mkdir()
            else:
                path.write_bytes(_spoilt(rng, base[name]))
        rows = preflight(Scene(survey(root), WANTED))
        assert verdict(rows), seed
        for name in spoilt:
            if (root / name).is_dir():
                (root / name).rmdir()
            (root / name).write_text(base[name])


def test_2000_spoilt_trees_end_in_rows(trees: Path) -> None:
    garbage(0, 2000, trees)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(2000, 22_000, 2000))
def test_20000_more_spoilt_trees_end_in_rows(trees: Path, first: int) -> None:
    garbage(first, 2000, trees)
