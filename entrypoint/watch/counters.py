"""What the head's vLLM counts (/metrics), and what the kernel counts of an engine's processes. Linux /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Metric of vLLM -> field; the same under both spellings that prometheus clients give a counter.
NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:generation_tokens_total": "generated",
    "vllm:prompt_tokens_total": "prompted",
    "vllm:kv_cache_usage_perc": "kv",
    "vllm:iteration_tokens_total_count": "steps",
}
COMPILERS = frozenset({"ptxas", "cicc", "nvcc", "ninja", "cc1plus", "cudafe++", "fatbinary", "nvlink"})


@dataclass(frozen=True)
class Counters:
    """One look at /metrics. Everything but `running` and `waiting` moves only when a step came back."""

    running: float = 0
    waiting: float = 0
    generated: float = 0
    prompted: float = 0
    kv: float = 0
    steps: float = 0

    @property
    def moved(self) -> tuple[float, float, float, float]:
        """What no step leaves unchanged."""
        return self.generated, self.prompted, self.kv, self.steps


# It begins with a fixed "\nvllm:", which `re` looks for first: 0.06 ms where "^" and MULTILINE took 0.31 (50 KB of vLLM
# 0.32.0's /metrics, lab, 2 cores, 2026-11-30).
_LINE = re.compile(rf"\n({'|'.join(map(re.escape, NAMES))})(?:\{{.*\}})? (\S+)(?=\n)")


def parse(text: str) -> Counters:
    """Counters from the text of /metrics; what is missing is 0. Several engines of one API are added up."""
    found: dict[str, float] = {}
    for name, value in _LINE.findall(f"\n{text}\n"):
        try:
            found[NAMES[name]] = found.get(NAMES[name], 0.0) + float(value)
        except ValueError:
            continue  # a line cut short
    return Counters(**found)


@dataclass(frozen=True)
class Activity:
    """What an engine's processes on this box have done, and hold.

    orders      bytes read and written by all of them: every step's orders come to a worker over a socket, and what
                it sends for them goes over one, so a rank that waits for nothing shows here. Both, because the
                kernel counts read() and write() only: what a library takes with recv() is in neither, nor is RDMA
    cpu_ticks   user and system time; a spinning kernel shows here too, so it proves nothing by itself
    compiling   names of compilers that run beneath
    """

    processes: int = 0
    orders: int = 0
    cpu_ticks: int = 0
    rss_bytes: int = 0
    compiling: tuple[str, ...] = ()


def activity(pids: Iterable[int], proc: Path = Path("/proc")) -> Activity:
    """One look at these processes; those that end meanwhile are left out."""
    count = orders = ticks = rss = 0
    compiling = set()
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        try:
            stat = (proc / str(pid) / "stat").read_text()
            statm = (proc / str(pid) / "statm").read_text()
            io = (proc / str(pid) / "io").read_text()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        count += 1
        ticks += int(fields[11]) + int(fields[12])
        rss += int(statm.split()[1]) * page
        orders += sum(int(line[6:]) for line in io.splitlines() if line.startswith(("rchar:", "wchar:")))
        if name in COMPILERS:
            compiling.add(name)
    return Activity(count, orders, ticks, rss, tuple(sorted(compiling)))


def size_of(folder: Path) -> int:
    """Bytes of all files beneath; 0 when there is none. A compiler that works makes this grow."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(root) / name).lstat().st_size
            except OSError:
                continue  # removed meanwhile
    return total
