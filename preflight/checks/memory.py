"""Rows about memory: what is free at once, what page cache holds, swap, what registration needs."""

from __future__ import annotations

from collections.abc import Iterator

from core.row import Row
from core.units import GIB, show_size
from preflight.checks.scene import Scene, row

# What the host keeps beside weights and KV, coarse on purpose: sizing has the exact budget.
HOST = 8 * GIB
REGISTERED = 2 * GIB  # free memory under which registering NCCL's buffers has failed (reported)
DROP = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"


def enough(scene: Scene) -> Iterator[Row]:
    """Weights, KV pin and host against what is available."""
    wanted, memory = scene.wanted, scene.survey.host.memory
    need = (wanted.weight_bytes // max(1, wanted.boxes)) + wanted.kv_bytes + HOST
    if not wanted.cpu and wanted.weight_bytes and memory.available < need:
        parts = f"weights {show_size(wanted.weight_bytes // max(1, wanted.boxes))}, KV {show_size(wanted.kv_bytes)}"
        seen = f"{show_size(memory.available)} available of {show_size(memory.total)}"
        cure = "End what else runs here (other containers, the desktop), or lower KV_CACHE_MEMORY: ./glm53 plan."
        yield row("WARN", seen, f"{show_size(need)} ({parts})", cure)


def page_cache(scene: Scene) -> Iterator[Row]:
    """CUDA and memory registration need pages that are free now; page cache counts as available, not as free."""
    wanted, memory = scene.wanted, scene.survey.host.memory
    need = max(wanted.weight_bytes // max(1, wanted.boxes) + wanted.kv_bytes, 16 * GIB)
    if not wanted.cpu and memory.free < need and memory.cached > 16 * GIB:
        seen = f"{show_size(memory.cached)} page cache, {show_size(memory.free)} free"
        yield row("WARN", seen, f"{show_size(need)} free", f"On the host: {DROP}")


def registration(scene: Scene) -> Iterator[Row]:
    """ibv_reg_mr pins pages for long: with too few free ones, or CMA blocks that cannot be emptied, it is ENOMEM."""
    memory = scene.survey.host.memory
    if scene.wanted.cpu or not scene.survey.devices:
        return
    yield from _registered(scene)
    if memory.free < REGISTERED:
        yield row(
            "WARN",
            f"{show_size(memory.free)} free",
            f"{show_size(REGISTERED)} for NCCL's buffers",
            f"On the host: {DROP}",
        )
    if memory.cma_total and memory.cma_free < memory.cma_total // 10:
        seen = f"CMA: {show_size(memory.cma_free)} free of {show_size(memory.cma_total)}"
        cure = f"On the host: {DROP}; if it stays full, reboot. Pages pinned for RDMA cannot lie in CMA blocks."
        yield row("WARN", seen, "CMA blocks that can be emptied", cure)


def _registered(scene: Scene) -> Iterator[Row]:
    """What came of registering a real buffer."""
    found = scene.survey.registered
    if found is None:
        return
    for one in found.tried:
        if one.error:
            seen = f"registering {show_size(one.bytes)} on {one.device}: {one.error}"
            cure = f"On the host: {DROP}; then read the rows kernel and memlock limit. If it stays, reboot."
            yield row("FAIL", seen, "a registered buffer on every device", cure)
    if found.hung:
        yield row("WARN", found.absent, "registered in milliseconds", "Reboot: the RDMA driver does not answer.")
    elif found.absent:
        yield row("info", f"registration not tried: {found.absent}")
    elif not any(one.error for one in found.tried):
        done = ", ".join(f"{one.device} {one.seconds:.3f} s" for one in found.tried)
        yield row("info", f"{show_size(found.tried[0].bytes)} registered: {done}" if found.tried else "no device")


def swap(scene: Scene) -> Iterator[Row]:
    """Swap in use: something does not fit already."""
    memory = scene.survey.host.memory
    used = memory.swap_total - memory.swap_free
    if used > 64 * 1024**2:
        cure = "sudo swapoff -a && sudo swapon -a, after ending what filled it."
        yield row("WARN", f"{show_size(used)} of swap in use", "none", cure)


def memlock(scene: Scene) -> Iterator[Row]:
    """RDMA registers memory under this limit."""
    limit = scene.survey.host.limits.get("memlock")
    if limit is not None and limit >= 0 and scene.wanted.inside and not scene.wanted.cpu:
        cure = "ulimits: memlock: -1 in the compose file (the kit's has it); on a bare host: ulimit -l unlimited."
        yield row("WARN", f"memlock is limited to {show_size(limit)}", "unlimited", cure)


def core_dumps(scene: Scene) -> Iterator[Row]:
    """A core dump of a 90 GiB process hangs the box."""
    limit = scene.survey.host.limits.get("core")
    if limit and scene.wanted.inside and not scene.wanted.cpu:
        size = "unlimited" if limit < 0 else show_size(limit)
        yield row("WARN", f"core dumps up to {size}", "0", "ulimits: core: 0 in the compose file (the kit's has it).")
