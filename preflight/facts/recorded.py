"""What a recording keeps beside files: disk space, GPUs, owners, what registering memory said,
and the RDMA counters some time before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.facts.folders import Folder
from preflight.facts.gpu import Gpu
from preflight.facts.registration import Registration
from preflight.facts.sysfs import read

FILE = "recorded.json"


@dataclass(frozen=True)
class Recorded:
    """`earlier`: RDMA device -> counter -> its value `seconds` before the counters in the tree were read."""

    gpus: tuple[Gpu, ...] | None = None
    disks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float = 0.0
    folders: tuple[Folder, ...] = ()
    registered: Registration | None = None


def recorded(root: Path) -> Recorded:
    """The recording's extra facts; an absent or damaged file is an empty one."""
    try:
        data = json.loads(read(root / FILE, 1 << 20) or "{}")
        return _recorded(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return Recorded()


def _recorded(data: Mapping[str, Any]) -> Recorded:
    seen, registered = data.get("gpus"), data.get("registered")
    return Recorded(
        gpus=None if seen is None else tuple(Gpu.from_dict(one) for one in seen),
        disks={str(path): (int(total), int(free)) for path, (total, free) in data.get("disks", {}).items()},
        earlier={
            str(device): {str(name): int(value) for name, value in counters.items()}
            for device, counters in data.get("earlier", {}).items()
        },
        seconds=float(data.get("seconds", 0.0)),
        folders=tuple(Folder.from_dict(one) for one in data.get("folders", ())),
        registered=None if registered is None else Registration.from_dict(registered),
    )
