"""This box's own use, looked at every few seconds: load, memory with its trend, and what the kernel complains of."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.log import log
from entrypoint.status import memory
from group.ask import boottime
from preflight.facts.kernel import KernelLog, alarm
from preflight.facts.usage import Usage, usage

if TYPE_CHECKING:
    from entrypoint.boot import Boot

KERNEL_S = 2.0
USAGE_EVERY = 5  # kernel looks; one look costs two milliseconds
KEPT = 180  # half an hour
ALARM_S = 1800.0  # an alarm is shown for so long after the last line of its kind
KINDS = 8
LARGEST = 64 * 1024
KERNEL, MEMORY = "kernel", "memory"


@dataclass
class Alarm:
    """Lines of one kind: how many, when the last came, and its text."""

    what: str
    count: int
    at: float
    line: str


class Machine:
    """What was seen of this box; `now` is None before the first look."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now: Usage | None = None
        self.before: Usage | None = None
        self.seconds = 0.0
        self.at = 0.0
        self.available: deque[tuple[float, int]] = deque(maxlen=KEPT)
        self.alarms: dict[str, Alarm] = {}
        self.kernel = KernelLog(root / "dev/kmsg")
        self.workers: tuple[memory.Worker, ...] = ()
        self.engine: frozenset[int] = frozenset()

    def hear_kernel(self, lines: list[str], now: float) -> bool:
        """Count alarming lines; True when there were any."""
        heard = False
        for line in lines:
            what = alarm(line)
            if what:
                known = self.alarms.get(what)
                self.alarms[what] = Alarm(what, (known.count if known else 0) + 1, now, line[:300])
                heard = True
        for what in [what for what, one in self.alarms.items() if now - one.at > ALARM_S]:
            del self.alarms[what]
        return heard

    def take(self, seen: Usage, workers: tuple[memory.Worker, ...], engine: frozenset[int], now: float) -> None:
        """One look at the box."""
        self.before, self.now = self.now, seen
        self.seconds, self.at = now - self.at, now
        self.workers, self.engine = workers, engine
        self.available.append((now, seen.meminfo.get("MemAvailable", 0)))

    def held(self) -> memory.Held | None:
        """The last look as the memory's picture reads it."""
        if self.now is None:
            return None
        driver: dict[int, int | None] = {}
        for gpu in self.now.gpus:
            driver |= dict(gpu.processes)
        known = {pid: size for pid, size in driver.items() if size is not None}
        return memory.Held(
            meminfo=self.now.meminfo,
            workers=self.workers,
            driver=known or None,
            engine=sum(size for pid, size in self.now.anonymous.items() if pid in self.engine),
            kit=self.now.anonymous.get(os.getpid(), 0),
            unified=all(gpu.memory is None for gpu in self.now.gpus),
        )

    def trend(self) -> memory.Trend:
        """Of the memory that is available."""
        return memory.trend(list(self.available))

    def load(self) -> dict[str, Any]:
        """Processor, disks and GPUs for JSON; rates between the last two looks."""
        now, before = self.now, self.before
        if now is None:
            return {"cpu": None, "cores": os.cpu_count(), "load": None, "uptime_s": None, "disks": [], "gpus": []}
        busy = now.cpu[0] - before.cpu[0] if before else 0
        ticks = now.cpu[1] - before.cpu[1] if before else 0
        rates = {
            name: [round((total - before.transfers[name][index]) / self.seconds) for index, total in enumerate(both)]
            for name, both in now.transfers.items()
            if before and name in before.transfers and self.seconds > 0
        }
        return {
            "cpu": round(busy / ticks, 3) if ticks else None,
            "cores": now.cores,
            "load": now.load,
            "uptime_s": round(now.uptime),
            "disks": [{"path": path, "total": both[0], "free": both[1]} for path, both in now.disks.items()],
            "transfers": {name: {"read": both[0], "written": both[1]} for name, both in rates.items()},
            "gpus": [
                {
                    "name": one.name,
                    "power_w": None if one.power is None else round(one.power, 1),
                    "clock_mhz": one.clock,
                    "temperature_c": one.temperature,
                    "busy_percent": one.busy,
                }
                for one in now.gpus
            ],
        }


async def watch(boot: Boot, machine: Machine) -> None:
    """For ever: the kernel's words every KERNEL_S, the box's use less often; troubles go into the box's view."""
    if machine.kernel.error:
        log("facts", "the kernel's log cannot be read: no alarm of it", seen=machine.kernel.error)
    looks = 0
    while True:
        now = boottime()
        if machine.hear_kernel(machine.kernel.lines(), now):
            for one in machine.alarms.values():
                if one.at == now:
                    log("watch", f"kernel: {one.line}", level="WARN")
        _trouble(boot, KERNEL, ", ".join(one.what for _, one in sorted(machine.alarms.items())[:KINDS]))
        if looks % USAGE_EVERY == 0:
            await _look(boot, machine)
            serving = boot.vital.answered_at is not None
            _trouble(boot, MEMORY, machine.trend().warning if serving else "")
        looks += 1
        await asyncio.sleep(KERNEL_S)


def _trouble(boot: Boot, key: str, text: str) -> None:
    if text:
        boot.troubles[key] = text
    else:
        boot.troubles.pop(key, None)


async def _look(boot: Boot, machine: Machine) -> None:
    engine = frozenset(boot.engine.pids()) if boot.engine is not None else frozenset()
    paths = {"/"} | {boot.text(name, "") for name in ("MODEL_DIR", "LOG_DIR", "CACHE_ROOT", "STATE_DIR")}
    folder = Path(boot.text("TORCH_MEM_STATS_DIR", "/logs"))

    def look() -> tuple[Usage, tuple[memory.Worker, ...]]:
        files = [data for path in sorted(folder.glob("memory-rank*.json")) if (data := _json(path)) is not None]
        pids = (*engine, os.getpid())
        disks = [Path(path) for path in sorted(paths) if path]
        return usage(machine.root, pids, disks), memory.workers(files, engine)

    seen, workers = await asyncio.to_thread(look)  # NVML waits for a driver that may be stuck
    machine.take(seen, workers, engine, boottime())


def _json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(LARGEST))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
