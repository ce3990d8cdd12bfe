"""The preflight, one line a check, causes before their consequences: the first warning is the first thing to fix."""

from __future__ import annotations

from core.row import Row, first_to_fix, warnings_first
from preflight.checks import answers, fabric, host, memory
from preflight.checks.scene import Check, Scene

CHECKS: tuple[Check, ...] = (
    Check("kernel", host.kernel),
    Check("GPU", host.gpu),
    Check("model files", host.model_files),
    Check("generation settings", answers.generation_settings),
    Check("fabric ports", fabric.ports, "a fabric port down or below 200 Gb/s"),
    Check("PCIe link", fabric.pcie, "a PCIe link below its maximum"),
    Check("NCCL settings elsewhere", fabric.nccl_settings),
    Check("rail addresses", fabric.addresses),
    Check("GIDs", fabric.gids),
    Check("PCIe roots", fabric.roots, "one ConnectX root instead of two"),
    Check("MTU", fabric.mtu, "a port MTU too small for RoCE's 4096-byte path MTU"),
    Check("link flaps", fabric.flaps, "link flaps"),
    Check("retransmits", fabric.retransmits, "RDMA retransmit counters"),
    Check("addresses after a reboot", fabric.persistence),
    Check("forwarding on a ring", fabric.forwarding),
    Check("Wi-Fi", fabric.wireless),
    Check("memlock limit", memory.memlock, "a memlock limit"),
    Check("GPU clock limits", host.clocks, "GPU clock-limit events"),
    Check("other GPU users", host.other_users, "other GPU processes"),
    Check("desktop", host.desktop, "a running desktop session"),
    Check("host memory", memory.enough, "too little host memory for the TP size and KV pin"),
    Check("page cache", memory.page_cache, "page cache the GPU cannot use yet"),
    Check("memory registration", memory.registration),
    Check("swap", memory.swap, "swap in use"),
    Check("core dumps", memory.core_dumps),
    Check("file systems", host.file_systems, "a model directory on NFS"),
    Check("cache folder", host.cache_folder),
    Check("disk space", host.disk, "no disk for the first weight snapshot"),
    Check("chat template", answers.chat_template),
    Check("attention plugin", answers.attention_plugin),
)


def preflight(scene: Scene) -> tuple[Row, ...]:
    """All rows of one box, warnings first."""
    return warnings_first(tuple(row for check in CHECKS for row in check.rows(scene)))


def verdict(rows: tuple[Row, ...]) -> str:
    """The last line of the table: the one thing to fix first."""
    first = first_to_fix(rows)
    if first is None:
        return "nothing to fix"
    cure = first.cure.partition("\n")[0]
    return f"first thing to fix: {first.name}: {first.seen}. {cure} {first.link}".strip()
