"""One look at the box, under 100 ms and without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from preflight.facts.network import default_route, interfaces
from preflight.facts.types import BoxFacts, Memory


def gather(root: Path = Path("/"), disks: Sequence[str] = ("/",)) -> BoxFacts:
    """The facts of the box whose file tree is `root`; a recorded tree is a test.

    `disks` are the paths whose file systems are measured.
    """
    kernel = root / "proc/sys/kernel"
    netdevs = interfaces(root)
    return BoxFacts(
        hostname=(kernel / "hostname").read_text().strip(),
        boot_id=(kernel / "random/boot_id").read_text().strip(),
        kernel=(kernel / "osrelease").read_text().strip(),
        interfaces=netdevs,
        default_route=default_route(root, netdevs),
        memory=memory(root),
        shm_bytes=_shm_used(root / "dev/shm"),
        disks={path: space for path in disks if (space := _space(root / path.lstrip("/"))) is not None},
        gpus=_gpus() if root == Path("/") else None,
    )


def memory(root: Path = Path("/")) -> Memory:
    """/proc/meminfo alone (the memory gate asks for it again and again)."""
    table = {}
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words:
            table[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return Memory(
        total=table["MemTotal"],
        available=table["MemAvailable"],
        free=table["MemFree"],
        swap_used=table.get("SwapTotal", 0) - table.get("SwapFree", 0),
    )


def _space(path: Path) -> tuple[int, int] | None:
    """(total, free for us) bytes of the file system that holds `path`; None where it does not exist."""
    try:
        stat = os.statvfs(path)
    except FileNotFoundError:
        return None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def _shm_used(path: Path) -> int:
    try:
        stat = os.statvfs(path)
    except FileNotFoundError:
        return 0
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def _gpus() -> int | None:
    """Devices NVML counts; None where its library is not installed or finds no driver."""
    import pynvml  # here: loading it costs start-up time of everything that reads facts types only

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
