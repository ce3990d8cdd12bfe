"""One look at the box, under 100 ms and without torch. What cannot be read is empty or 0, never an error."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from preflight.facts.gpu import count
from preflight.facts.network import default_route, interfaces
from preflight.facts.recorded import Recorded, recorded
from preflight.facts.sysfs import meminfo, read
from preflight.facts.types import BoxFacts, Memory

LIVE = Path("/")


def gather(root: Path = LIVE, disks: Sequence[str] = ("/",)) -> BoxFacts:
    """The facts of the box whose file tree is `root`; a recorded tree is a test.

    `disks` are the paths whose file systems are measured; a recorded tree says what they were.
    """
    kernel = root / "proc/sys/kernel"
    netdevs = interfaces(root)
    kept = recorded(root) if root != LIVE else None
    return BoxFacts(
        hostname=read(kernel / "hostname"),
        boot_id=read(kernel / "random/boot_id"),
        kernel=read(kernel / "osrelease"),
        interfaces=netdevs,
        default_route=default_route(root, netdevs),
        memory=memory(root),
        shm_bytes=_shm_used(root / "dev/shm"),
        disks=_disks(root, disks, kept),
        gpus=count() if kept is None else None if kept.gpus is None else len(kept.gpus),
    )


def memory(root: Path = LIVE) -> Memory:
    """/proc/meminfo alone (the memory gate asks for it again and again)."""
    table = meminfo(read(root / "proc/meminfo"))
    return Memory(
        total=table.get("MemTotal", 0),
        available=table.get("MemAvailable", 0),
        free=table.get("MemFree", 0),
        swap_used=table.get("SwapTotal", 0) - table.get("SwapFree", 0),
    )


def _disks(root: Path, paths: Sequence[str], kept: Recorded | None) -> dict[str, tuple[int, int]]:
    if kept is not None and kept.disks:
        return dict(kept.disks)
    return {path: space for path in paths if (space := _space(root / path.lstrip("/"))) is not None}


def _space(path: Path) -> tuple[int, int] | None:
    """(total, free for us) bytes of the file system that holds `path`; None where it does not exist."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def _shm_used(path: Path) -> int:
    try:
        stat = os.statvfs(path)
    except OSError:
        return 0
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


__all__ = ["gather", "memory"]
