"""One box's memory as one picture: where every byte of MemTotal is, against what the plan gave it. Pure.

On GB10 the GPU's memory is the host's, and what the driver hands out shows in no process's RSS. So the parts come
from three sources: workers' allocator counters (torch), NVML per process, and /proc; what none of them explains is a
part with a name. The parts always sum to MemTotal. Weights and KV cannot be measured apart: of what torch holds, so
much as the plan says is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.units import GIB, show_seconds, show_size

FLOOR = GIB  # of available memory; under it the box stops answering before anything is killed
NEAR_S = 1800.0  # a cliff nearer than this is warned of
LEAST_S = 300.0  # a slope over less time is noise
STEADY = 64 * 1024**2  # bytes an hour: no slope worth a word


@dataclass(frozen=True)
class Worker:
    """One rank's allocator counters: its pid, bytes reserved and allocated."""

    pid: int
    reserved: int
    allocated: int


@dataclass(frozen=True)
class Held:
    """What was measured, in bytes.

    meminfo    by its own names
    workers    of living processes of this engine
    driver     pid -> bytes that NVML says the driver gave it; None where NVML does not say
    engine, kit   RssAnon of the engine's and of the kit's own processes
    unified    the GPU's memory is the host's; else driver and torch bytes are not part of MemTotal
    """

    meminfo: Mapping[str, int]
    workers: tuple[Worker, ...] = ()
    driver: Mapping[int, int | None] | None = None
    engine: int = 0
    kit: int = 0
    unified: bool = True


@dataclass(frozen=True)
class Segment:
    """One part. group: gpu, process, kernel, cache, free or rest; measured: how it is known."""

    name: str
    size: int
    group: str
    measured: str


def segments(held: Held, budget: Mapping[str, int]) -> tuple[Segment, ...]:
    """Parts that sum to MemTotal, in a fixed order; empty ones are left out. `budget`: the plan's items by name."""
    info = held.meminfo
    total = info.get("MemTotal", 0)
    anonymous, shared = info.get("AnonPages", 0), info.get("Shmem", 0)
    engine = min(held.engine, anonymous)
    kit = min(held.kit, anonymous - engine)
    kernel = sum(info.get(name, 0) for name in ("SUnreclaim", "KernelStack", "PageTables", "Percpu"))
    cache = max(0, info.get("Cached", 0) + info.get("Buffers", 0) - shared)
    host = [
        Segment("engine's processes", engine, "process", "RssAnon"),
        Segment("the kit", kit, "process", "RssAnon"),
        Segment("other processes", anonymous - engine - kit, "process", "AnonPages less the above"),
        Segment("shared memory", shared, "process", "Shmem"),
        Segment("kernel", kernel, "kernel", "SUnreclaim, stacks, page tables, Percpu"),
        Segment("page cache", cache, "cache", "Cached + Buffers - Shmem"),
        Segment("reclaimable kernel", info.get("SReclaimable", 0), "cache", "SReclaimable"),
        Segment("free", info.get("MemFree", 0), "free", "MemFree"),
    ]
    gpu = _gpu(held, budget) if held.unified else []
    return tuple(one for one in _closed([*gpu, *host], total, bool(held.driver)) if one.size)


def _gpu(held: Held, budget: Mapping[str, int]) -> list[Segment]:
    reserved = sum(worker.reserved for worker in held.workers)
    allocated = min(reserved, sum(worker.allocated for worker in held.workers))
    planned = {"weights": budget.get("weights", 0), "KV cache": kv_of(budget)}
    weights = min(allocated, planned["weights"])
    kv = min(allocated - weights, planned["KV cache"])
    given = held.driver or {}
    pids = {worker.pid for worker in held.workers}
    mine = sum(size or 0 for pid, size in given.items() if pid in pids or not pids)
    others = sum(size or 0 for pid, size in given.items() if pids and pid not in pids)
    return [
        Segment("weights", weights, "gpu", "allocator, as much as planned"),
        Segment("KV cache", kv, "gpu", "allocator, as much as planned"),
        Segment("graphs and activations", allocated - weights - kv, "gpu", "allocator, the rest in use"),
        Segment("other torch", reserved - allocated, "gpu", "allocator, reserved and not in use"),
        Segment("NCCL, CUDA and JIT", max(0, mine - reserved), "gpu", "NVML per process less torch"),
        Segment("other GPU processes", others, "gpu", "NVML per process"),
    ]


def kv_of(budget: Mapping[str, int]) -> int:
    """Bytes of the whole KV pool in a plan's budget."""
    return sum(size for name, size in budget.items() if name.startswith("KV pool"))


def _closed(parts: Sequence[Segment], total: int, told: bool) -> list[Segment]:
    """With the rest, named. Where sources overlap (pages that NVML and /proc both count) the sum is brought back to
    the total: first what only the driver's account gives, then cache, then the rest of the list from its end.
    """
    over = sum(part.size for part in parts) - total
    sizes = {part.name: part.size for part in parts}
    order = ["NCCL, CUDA and JIT", "other GPU processes", "page cache", *reversed([part.name for part in parts])]
    for name in order:
        if over <= 0:
            break
        taken = min(over, sizes.get(name, 0))
        if taken:
            sizes[name] -= taken
            over -= taken
    what = "driver and unaccounted" if told else "GPU driver, CUDA, NCCL, JIT and unaccounted"
    rest = Segment(what, max(0, total - sum(sizes.values())), "rest", "MemTotal less all the above")
    closed = [Segment(part.name, sizes[part.name], part.group, part.measured) for part in parts]
    at = next((index for index, part in enumerate(closed) if part.group == "cache"), len(closed))
    return [*closed[:at], rest, *closed[at:]]


# The plan's items in the picture's words: what a budget bar is drawn of.
PLANNED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("weights", "gpu", ("weights",)),
    ("KV cache", "gpu", ("KV pool: tokens", "KV pool: KDA states", "KV pool: drafter's own")),
    ("graphs and activations", "gpu", ("CUDA graphs", "activations", "long prompts")),
    ("NCCL, CUDA and JIT", "gpu", ("RDMA and NCCL", "CUDA and libraries")),
    ("engine's processes", "process", ("processes",)),
    ("kernel", "kernel", ("host floor",)),
)


def planned(budget: Mapping[str, int], total: int) -> tuple[Segment, ...]:
    """The plan's budget as parts of the same names and order; `left over` closes it, if anything is left."""
    known = {name for _, _, names in PLANNED for name in names}
    parts = [Segment(n, sum(budget.get(item, 0) for item in items), group, "plan") for n, group, items in PLANNED]
    parts += [Segment(name, size, "rest", "plan") for name, size in budget.items() if name not in known]
    parts.append(Segment("left over", max(0, total - sum(part.size for part in parts)), "free", "plan"))
    return tuple(part for part in parts if part.size)


@dataclass(frozen=True)
class Trend:
    """available: bytes now; slope: bytes an hour, None while too little was seen; warning: one sentence or ""."""

    available: int
    slope: float | None
    warning: str


def trend(seen: Sequence[tuple[float, int]]) -> Trend:
    """From (time, MemAvailable) pairs, oldest first. The slope is the median of slopes between the first and the
    second half (one sample that stands out does not move it).
    """
    if not seen:
        return Trend(0, None, "")
    available = seen[-1][1]
    slope = _slope(seen)
    if available < FLOOR:
        return Trend(available, slope, f"only {show_size(available)} of memory is available: the box is about to stall")
    if slope is None or slope > -STEADY:
        return Trend(available, slope, "")
    left_s = 3600 * (available - FLOOR) / -slope
    if left_s > NEAR_S:
        return Trend(available, slope, "")
    falls = f"memory falls by {show_size(round(-slope))} an hour"
    text = f"{falls}: {show_size(FLOOR)} is reached in {show_seconds(left_s)}"
    return Trend(available, slope, text)


def _slope(seen: Sequence[tuple[float, int]]) -> float | None:
    if seen[-1][0] - seen[0][0] < LEAST_S:
        return None
    half = len(seen) // 2
    pairs = zip(seen[:half], seen[-half:], strict=True)
    slopes = sorted((late - early) / (then - at) for (at, early), (then, late) in pairs if then > at)
    return 3600 * slopes[len(slopes) // 2] if slopes else None


def workers(files: Sequence[Mapping[str, Any]], alive: frozenset[int]) -> tuple[Worker, ...]:
    """From the contents of memory-rank<R>.json; those of processes that are not this engine's are skipped: the
    folder outlives them.
    """
    found = {}
    for data in files:
        pid, reserved = data.get("pid"), data.get("reserved_bytes.all.current")
        allocated = data.get("allocated_bytes.all.current")
        if isinstance(pid, int) and pid in alive and isinstance(reserved, int) and isinstance(allocated, int):
            found[pid] = Worker(pid, max(0, reserved), max(0, allocated))
    return tuple(found[pid] for pid in sorted(found))
