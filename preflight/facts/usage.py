"""What a box uses now: memory to the last byte, processor, disks, GPU power and clocks. Read often, so it is cheap."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.facts.sysfs import meminfo, read, whole

DISK = re.compile(r"^(nvme\d+n\d+|sd[a-z]+|vd[a-z]+|mmcblk\d+)$")
SECTOR = 512


@dataclass(frozen=True)
class GpuUse:
    """One GPU; None where NVML gives no figure. watts; MHz; degrees Celsius; share of time busy in percent.

    processes   (pid, bytes) of what computes on it; bytes None where NVML does not say (all of them on some GB10)
    memory      bytes of the device's own memory; None on GB10, whose memory is the host's
    """

    name: str
    power: float | None = None
    clock: int | None = None
    temperature: int | None = None
    busy: int | None = None
    processes: tuple[tuple[int, int | None], ...] = ()
    memory: int | None = None


@dataclass(frozen=True)
class Usage:
    """One look.

    meminfo     /proc/meminfo in bytes by its own names
    anonymous   pid -> RssAnon in bytes, of the processes asked for
    cpu         (busy, all) ticks since boot; load: the one-minute average; uptime in seconds
    disks       path -> (total, free) bytes
    transfers   block device -> (bytes read, bytes written) since boot
    """

    meminfo: dict[str, int] = field(default_factory=dict)
    anonymous: dict[int, int] = field(default_factory=dict)
    cpu: tuple[int, int] = (0, 0)
    cores: int = 1
    load: float = 0.0
    uptime: float = 0.0
    disks: dict[str, tuple[int, int]] = field(default_factory=dict)
    transfers: dict[str, tuple[int, int]] = field(default_factory=dict)
    gpus: tuple[GpuUse, ...] = ()


def usage(root: Path, pids: Iterable[int], disks: Iterable[Path]) -> Usage:
    """One look beneath `root`; what cannot be read is empty."""
    proc = root / "proc"
    words = read(proc / "stat").split("\n", 1)[0].split()[1:9]
    ticks = [whole(word) for word in words]
    idle = sum(ticks[3:5])
    return Usage(
        meminfo=meminfo(read(proc / "meminfo")),
        anonymous={pid: anonymous(read(proc / str(pid) / "status")) for pid in pids},
        cpu=(sum(ticks) - idle, sum(ticks)),
        cores=os.cpu_count() or 1,
        load=_first(read(proc / "loadavg")),
        uptime=_first(read(proc / "uptime")),
        disks={str(path): room for path in disks if (room := _room(path)) is not None},
        transfers=transfers(read(proc / "diskstats", 1 << 18)),
        gpus=gpus(),
    )


def anonymous(status: str) -> int:
    """RssAnon of /proc/PID/status in bytes: what is the process's own, not files and not shared memory."""
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return whole(line.split()[1]) * 1024
    return 0


def transfers(diskstats: str) -> dict[str, tuple[int, int]]:
    """Bytes read and written of whole devices."""
    found = {}
    for line in diskstats.splitlines():
        words = line.split()
        if len(words) >= 10 and DISK.match(words[2]):
            found[words[2]] = (whole(words[5]) * SECTOR, whole(words[9]) * SECTOR)
    return found


def _first(text: str) -> float:
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return 0.0


def _room(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


_nvml: Any = None  # the library, opened once: opening it at every look costs more than the look


def gpus() -> tuple[GpuUse, ...]:
    """All GPUs; none where there is no NVML."""
    global _nvml
    if _nvml is None:
        try:
            import pynvml  # here: loading it costs start-up time, and a bare host may be without it

            pynvml.nvmlInit()
            _nvml = pynvml
        except Exception:  # noqa: BLE001  # no package, no library, no driver: no GPU to look at, for good
            _nvml = False
    if not _nvml:
        return ()
    try:
        return tuple(_gpu(_nvml, index) for index in range(int(_nvml.nvmlDeviceGetCount())))
    except _nvml.NVMLError:
        return ()


def _gpu(nvml: Any, index: int) -> GpuUse:
    device = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(device, *arguments)
        except nvml.NVMLError:  # not supported on this GPU
            return None

    name, power, busy = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetUtilizationRates")
    memory = ask("nvmlDeviceGetMemoryInfo")
    processes = ask("nvmlDeviceGetComputeRunningProcesses") or ()
    return GpuUse(
        name=name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name or ""),
        power=None if power is None else power / 1000,
        clock=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        temperature=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        busy=None if busy is None else int(busy.gpu),
        processes=tuple((int(one.pid), one.usedGpuMemory) for one in processes),
        memory=None if memory is None else int(memory.total),
    )
