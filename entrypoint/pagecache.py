"""Page cache given back while a model loads: it counts as available, yet CUDA and memory registration need it free.

`posix_fadvise(DONTNEED)` drops the clean pages of the model's own files and needs no root. A file that somebody is
reading is dropped up to where the reader stands; pages that a process has mapped the kernel keeps by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.log import log
from core.units import show_size
from preflight.facts.host import page_cache

if TYPE_CHECKING:
    from entrypoint.boot import Boot

PAUSE_S = 5.0
MOST_FILES = 1000
TOLD = 1 << 30  # less than this is not worth a line


def evict(folders: Iterable[Path], readers: Mapping[Path, int] | None = None) -> int:
    """Drop the cached pages of the large files in `folders`; returns how many files were asked for.

    `readers`: file -> how far its slowest reader has come, bytes.
    """
    asked = 0
    for path in _files(folders):
        length = (readers or {}).get(path.resolve(), 0)
        if readers and path.resolve() in readers and not length:
            continue  # length 0 would mean "to the end"
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, length, os.POSIX_FADV_DONTNEED)
            asked += 1
    return asked


def readers_of(pids: Iterable[int], root: Path = Path("/proc")) -> dict[Path, int]:
    """Files that these processes have open -> the smallest position of those that read them."""
    found: dict[Path, int] = {}
    for pid in pids:
        with suppress(OSError):  # it has ended meanwhile
            for entry in (root / str(pid) / "fd").iterdir():
                with suppress(OSError, ValueError, IndexError):
                    target = entry.readlink()
                    if target.suffix == ".safetensors":
                        text = (root / str(pid) / "fdinfo" / entry.name).read_text()
                        at = int(text.split("pos:")[1].split()[0])
                        found[target] = min(at, found.get(target, at))
    return found


def _files(folders: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        with suppress(OSError):
            found += sorted(folder.glob("*.safetensors"))
    return found[:MOST_FILES]


async def clear(boot: Boot, stage: str) -> None:
    """Once: what a copy or an earlier load has left behind, before NCCL registers memory."""
    before = page_cache(boot.root)
    await asyncio.to_thread(evict, _model_folders(boot))
    freed = before - page_cache(boot.root)
    if freed >= TOLD:
        log(stage, "page cache of the model's files given back", freed=show_size(freed))


async def keep_clear(boot: Boot) -> None:
    """While this engine loads: every PAUSE_S what it has read already."""
    engine, folders = boot.engine, _model_folders(boot)
    while engine is not None and boot.engine is engine and engine.running and not boot.served_at:
        await asyncio.to_thread(_evict_read, folders, engine.pids())
        await asyncio.sleep(PAUSE_S)


def _evict_read(folders: Sequence[Path], pids: Sequence[int]) -> None:
    evict(folders, readers_of(pids))


def _model_folders(boot: Boot) -> list[Path]:
    settings = boot.settings
    assert settings is not None
    return [Path(text) for name in ("MODEL_DIR", "DFLASH_MODEL") if (text := settings.text(name))]
