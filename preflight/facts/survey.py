"""Everything preflight and doctor look at, in one value: the box, its RDMA devices, the host, the GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.facts.gather import LIVE, gather
from preflight.facts.gpu import Gpu, gpus
from preflight.facts.host import HostFacts, host
from preflight.facts.rdma import RdmaDevice, devices
from preflight.facts.recorded import recorded
from preflight.facts.registration import Registration, probe
from preflight.facts.sysfs import read
from preflight.facts.types import BoxFacts

# Where an address is written down so that it survives a reboot.
NETWORK_FILES = (
    "etc/netplan/*.yaml",
    "etc/NetworkManager/system-connections/*",
    "etc/systemd/network/*.network",
    "etc/network/interfaces",
    "etc/network/interfaces.d/*",
)


@dataclass(frozen=True)
class Survey:
    """One box as the checks see it.

    configured  text of the files that give netdevs their addresses; None where none can be seen (in a container)
    rates       (RDMA device, counter, its growth a second), those that grew
    registered  what came of registering a buffer; None where there is no RDMA device, or nobody tried
    """

    box: BoxFacts
    devices: tuple[RdmaDevice, ...]
    host: HostFacts
    gpus: tuple[Gpu, ...] | None
    configured: str | None
    rates: tuple[tuple[str, str, float], ...] = ()
    registered: Registration | None = None


def survey(
    root: Path = LIVE, disks: Sequence[str] = ("/",), environ: Mapping[str, str] | None = None, sample_s: float = 0.0
) -> Survey:
    """Look at the box whose file tree is `root`; with `sample_s`, twice at its counters. `disks` are the paths whose
    file systems and owners matter.
    """
    kept = None if root == LIVE else recorded(root)
    found, earlier, seconds = devices(root), kept.earlier if kept else {}, kept.seconds if kept else 0.0
    if sample_s and found:
        time.sleep(sample_s)
        earlier, seconds = {device.name: dict(device.counters) for device in found}, sample_s
        found = devices(root)
    return Survey(
        box=gather(root, disks),
        devices=found,
        host=host(root, environ, disks if kept is None else (), kept.folders if kept else ()),
        gpus=gpus() if kept is None else kept.gpus,
        configured=_configured(root),
        rates=rates(earlier, found, seconds),
        registered=kept.registered if kept else probe() if found else None,
    )


def rates(
    earlier: Mapping[str, Mapping[str, int]], later: Sequence[RdmaDevice], seconds: float
) -> tuple[tuple[str, str, float], ...]:
    """Growth a second of every counter that grew between two looks."""
    if not 0 < seconds < float("inf"):
        return ()
    return tuple(
        (device.name, name, (value - before) / seconds)
        for device in later
        for name, value in device.counters
        if (before := earlier.get(device.name, {}).get(name, value)) < value
    )


def _configured(root: Path) -> str | None:
    texts = []
    for pattern in NETWORK_FILES:
        try:
            texts += [read(path) for path in sorted(root.glob(pattern)) if path.is_file()]
        except OSError:
            continue
    texts = [text for text in texts if text]
    return "\n".join(texts) if texts else None
