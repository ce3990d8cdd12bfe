"""Cap a worker's GPU memory and record what it holds.

Installed into the vllm package by the patch `worker-memory-cap`; `arm` is called once the device is set.
  TORCH_MEM_FRACTION           share of the device torch may allocate; empty: no cap
  TORCH_MEM_TRACE_DIR          on an out-of-memory: the stack in the log, a snapshot file here
  TORCH_MEM_TRACE_ENTRIES      allocations the trace remembers (100000)
  TORCH_MEM_STATS_DIR          counters as JSON, a file per rank, replaced in place
  TORCH_MEM_STATS_INTERVAL     seconds between two of them (15)
"""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.logger import init_logger

logger = init_logger(__name__)
COUNTERS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
)


@dataclass(frozen=True)
class Wish:
    """What the environment asks for; None or 0 where it does not."""

    fraction: float | None
    trace: Path | None
    entries: int
    stats: Path | None
    interval: float


def wish(environ: Any = os.environ) -> Wish:
    """Read the environment. Empty means unset. Raises ValueError naming the variable and what it takes."""

    def number(name: str, default: float | None, low: float, high: float) -> float | None:
        text = environ.get(name, "")
        if text == "":
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low < value <= high:
            raise ValueError(f"{name}={text!r}: expected a number above {low:g} and at most {high:g}")
        return value

    def folder(name: str) -> Path | None:
        return Path(environ[name]) if environ.get(name) else None

    return Wish(
        number("TORCH_MEM_FRACTION", None, 0, 1),
        folder("TORCH_MEM_TRACE_DIR"),
        int(number("TORCH_MEM_TRACE_ENTRIES", 100000, 0, 10_000_000) or 0),
        folder("TORCH_MEM_STATS_DIR"),
        number("TORCH_MEM_STATS_INTERVAL", 15.0, 0, 86400) or 15.0,
    )


def arm(device: torch.device, rank: int) -> None:
    """Do what the environment asks for, on this device. A folder that cannot be written ends in a log line."""
    wanted = wish()
    if wanted.fraction is not None:
        torch.cuda.set_per_process_memory_fraction(wanted.fraction, device)
        logger.info("glm53: torch may allocate %.0f%% of the device", 100 * wanted.fraction)
    if wanted.trace is not None:
        torch.cuda.memory._record_memory_history(max_entries=wanted.entries)
        torch._C._cuda_attach_out_of_memory_observer(OutOfMemory(wanted.trace, rank, torch.cuda.memory._snapshot))
    if wanted.stats is not None:
        writer = StatsWriter(wanted.stats, rank, wanted.interval, lambda: torch.cuda.memory_stats(device))
        threading.Thread(target=writer.run, name="glm53-memory", daemon=True).start()


class OutOfMemory:
    """Called by torch inside the failing allocation: one stack in the log, one snapshot on disk, never an error."""

    def __init__(self, folder: Path, rank: int, snapshot: Callable[[], Any]) -> None:
        self.folder, self.rank, self.snapshot = folder, rank, snapshot
        self.seen = False

    def __call__(self, device: int, alloc: int, device_alloc: int, device_free: int) -> None:
        """`alloc` bytes were asked for; `device_free` were free."""
        if self.seen:
            return
        self.seen = True
        logger.error(
            "glm53: out of GPU memory: %d bytes asked, %d free\n%s",
            alloc,
            device_free,
            "".join(traceback.format_stack()),
        )
        path = self.folder / f"oom-rank{self.rank}.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.snapshot(), default=str))
        except (OSError, RuntimeError) as error:
            logger.error("glm53: no memory snapshot in %s: %s", path, error)


class StatsWriter:
    """Publishes the allocator's counters as `memory-rank<R>.json`: whole or not at all, however it is read."""

    def __init__(self, folder: Path, rank: int, interval: float, read: Callable[[], dict[str, Any]]) -> None:
        self.path = folder / f"memory-rank{rank}.json"
        self.interval, self.read, self.rank = interval, read, rank

    def write(self) -> None:
        """Write the counters once."""
        stats = self.read()
        content = {
            "time": time.time(),
            "rank": self.rank,
            "pid": os.getpid(),
            **{name: stats[name] for name in COUNTERS if name in stats},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".tmp")
        fresh.write_text(json.dumps(content))
        fresh.replace(self.path)

    def run(self) -> None:
        """Write for as long as the process lives; the first failure is logged and ends it."""
        while True:
            try:
                self.write()
            except OSError as error:
                logger.error("glm53: no memory counters in %s: %s", self.path, error)
                return
            time.sleep(self.interval)
