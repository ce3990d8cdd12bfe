"""The host behind the box: memory in detail, limits, mounts, units, resolver, NCCL sources. Files only, no commands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preflight.facts.folders import Folder, folders_of
from preflight.facts.sysfs import meminfo, read, whole

# Units whose invocation link under /run/systemd/units says that a desktop is running.
DESKTOPS = ("gdm", "gdm3", "lightdm", "sddm", "display-manager", "xdm")
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "afs", "beegfs", "fuse.sshfs", "fuse.ceph"}
)
NCCL_FILES = ("etc/nccl.conf", "root/.nccl.conf")
NCCL_PLACES = (
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib",
    "opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib",
)
SAMPLE = 1 << 20
# Title in /proc/self/limits -> name.
_LIMITS = {"Max locked memory": "memlock", "Max core file size": "core", "Max stack size": "stack"}


@dataclass(frozen=True)
class MemoryDetail:
    """/proc/meminfo in bytes; 0 where a line is missing. `cached` counts page cache with buffers, without shm."""

    total: int
    available: int
    free: int
    cached: int
    shmem: int
    cma_total: int
    cma_free: int
    swap_total: int
    swap_free: int


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    path: str
    kind: str
    source: str
    read_only: bool


@dataclass(frozen=True)
class Netdev:
    """What changes under a netdev: Mb/s (0 unknown), carrier changes since boot, operstate."""

    name: str
    speed: int
    carrier_changes: int
    operstate: str


@dataclass(frozen=True)
class NcclLibrary:
    """A libnccl on disk: its path, the version its package says, 16 hex digits of sha256 over size, head and tail
    (the whole file is 300 MB; the fabric check hashes the library that torch has loaded).
    """

    path: str
    version: str
    digest: str


@dataclass(frozen=True)
class HostFacts:
    """Everything the checks read beside BoxFacts and the RDMA devices.

    limits        "memlock", "core", "stack" -> soft limit in bytes; -1 is unlimited
    units         names of running systemd units (without .service), as far as the container sees them
    nccl_sources  "file:/etc/nccl.conf" or "environment" -> {NAME: value}
    """

    memory: MemoryDetail
    limits: Mapping[str, int]
    mounts: tuple[Mount, ...]
    netdevs: tuple[Netdev, ...]
    units: tuple[str, ...]
    nameservers: tuple[str, ...]
    nccl_sources: Mapping[str, Mapping[str, str]]
    nccl_library: NcclLibrary | None
    shm_bytes: int
    forwarding: bool
    folders: tuple[Folder, ...] = ()

    @property
    def desktops(self) -> tuple[str, ...]:
        """Running units that bring up a desktop."""
        return tuple(unit for unit in self.units if unit in DESKTOPS)

    def mount_of(self, path: str) -> Mount | None:
        """The mount that holds an absolute path: the longest that is a parent of it, the last of equals."""
        best = None
        for mount in self.mounts:
            inside = mount.path == "/" or path == mount.path or path.startswith(mount.path.rstrip("/") + "/")
            if inside and (best is None or len(mount.path) >= len(best.path)):
                best = mount
        return best


def host(
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    paths: Sequence[str] = (),
    known: Sequence[Folder] = (),
) -> HostFacts:
    """The host facts of the file tree `root`; what is absent is empty, never an error. `paths`: folders whose owners
    are looked at, beside those already `known`.
    """
    return HostFacts(
        memory=_memory(root),
        limits=_limits(read(root / "proc/self/limits")),
        mounts=_mounts(read(root / "proc/self/mountinfo", 1 << 20)),
        netdevs=_netdevs(root / "sys/class/net"),
        units=_units(root / "run/systemd/units"),
        nameservers=tuple(
            words[1]
            for line in read(root / "etc/resolv.conf").splitlines()
            if (words := line.split())[:1] == ["nameserver"] and len(words) > 1
        ),
        nccl_sources=_nccl_sources(root, environ or {}),
        nccl_library=_nccl_library(root),
        shm_bytes=_shm(root),
        forwarding=read(root / "proc/sys/net/ipv4/ip_forward") == "1",
        folders=(*known, *folders_of(paths)),
    )


def page_cache(root: Path = Path("/")) -> int:
    """Bytes of page cache with buffers, without shared memory."""
    return _memory(root).cached


def _memory(root: Path) -> MemoryDetail:
    get = meminfo(read(root / "proc/meminfo")).get
    return MemoryDetail(
        total=get("MemTotal", 0),
        available=get("MemAvailable", 0),
        free=get("MemFree", 0),
        cached=max(get("Cached", 0) + get("Buffers", 0) - get("Shmem", 0), 0),
        shmem=get("Shmem", 0),
        cma_total=get("CmaTotal", 0),
        cma_free=get("CmaFree", 0),
        swap_total=get("SwapTotal", 0),
        swap_free=get("SwapFree", 0),
    )


def _limits(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        for title, name in _LIMITS.items():
            words = line[len(title) :].split()
            if line.startswith(title) and words:
                found[name] = -1 if words[0] == "unlimited" else whole(words[0])
    return found


def _mounts(text: str) -> tuple[Mount, ...]:
    found = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if separator and len(left) >= 6 and len(right) >= 2:
            path = left[4].encode().decode("unicode_escape", "replace") if "\\" in left[4] else left[4]
            found.append(Mount(path, right[0], right[1], "ro" in left[5].split(",")))
    return tuple(found)


def _netdevs(folder: Path) -> tuple[Netdev, ...]:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
    found = []
    for name in names:
        found.append(
            Netdev(
                name=name,
                speed=whole(read(folder / name / "speed")),
                carrier_changes=whole(read(folder / name / "carrier_changes")),
                operstate=read(folder / name / "operstate"),
            )
        )
    return tuple(found)


def _units(folder: Path) -> tuple[str, ...]:
    """systemd keeps one link `invocation:NAME.service` a running unit."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return ()
    return tuple(
        name.removeprefix("invocation:").removesuffix(".service") for name in names if name.startswith("invocation:")
    )


def _nccl_sources(root: Path, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name in NCCL_FILES:
        lines = [line.partition("#")[0].partition("=") for line in read(root / name).splitlines()]
        values = {key.strip(): value.strip() for key, equals, value in lines if equals and key.strip()}
        if values:
            found[f"file:/{name}"] = values
    given = {name: value for name, value in environ.items() if name.startswith("NCCL_")}
    if given:
        found["environment"] = given
    return found


def _nccl_library(root: Path) -> NcclLibrary | None:
    for place in NCCL_PLACES:
        path = root / place / "libnccl.so.2"
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - SAMPLE))
                tail = file.read(SAMPLE)
                file.seek(0)
                digest = hashlib.sha256(str(size).encode() + file.read(SAMPLE) + tail).hexdigest()[:16]
            packages = [one.name for one in path.parents[2].glob("nvidia_nccl_cu*.dist-info")]
        except OSError:
            continue
        version = packages[0].partition("-")[2].removesuffix(".dist-info") if packages else ""
        return NcclLibrary(f"/{place}/libnccl.so.2", version, digest)
    return None


def _shm(root: Path) -> int:
    try:
        stat = os.statvfs(root / "dev/shm")
    except OSError:
        return 0
    return stat.f_blocks * stat.f_frsize
