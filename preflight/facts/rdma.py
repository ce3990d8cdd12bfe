"""RDMA devices, their ports, GID tables, counters and PCI functions, from sysfs alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from preflight.facts.sysfs import read, whole

COUNTERS = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rx_icrc_encapsulated",
)
_RATE = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)")
_SPEED = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*GT/s")


@dataclass(frozen=True)
class Gid:
    """One used slot of a port's GID table. `address` is the IPv4 of a v4-mapped GID, else the IPv6."""

    index: int
    address: str
    kind: str  # "RoCE v2", "IB/RoCE v1"
    netdev: str


@dataclass(frozen=True)
class Link:
    """A PCI function's link as it is and as it could be: GT/s a lane and lanes; 0 where sysfs says nothing."""

    speed: float
    width: int
    max_speed: float
    max_width: int


@dataclass(frozen=True)
class RdmaDevice:
    """One RDMA device with port 1, the only one a ConnectX-7 function has.

    netdevs   of the same PCI function
    function  "0000:01:00.0"; twins of one physical port differ in the domain only
    rate      Gb/s; `state` e.g. "4: ACTIVE", `phys_state` e.g. "5: LinkUp", `layer` e.g. "Ethernet"
    gids      used slots only; holes are normal
    counters  of COUNTERS, those that exist
    """

    name: str
    function: str
    netdevs: tuple[str, ...]
    state: str
    phys_state: str
    layer: str
    rate: float
    gids: tuple[Gid, ...]
    counters: tuple[tuple[str, int], ...]
    link: Link
    firmware: str

    @property
    def active(self) -> bool:
        """The port carries traffic."""
        return self.state.startswith("4") and self.layer == "Ethernet"

    @property
    def root(self) -> str:
        """The PCI domain, which on GB10 tells the PCIe root: "0000" or "0002"."""
        return self.function.partition(":")[0]

    @property
    def place(self) -> str:
        """bus:device.function, equal for the two twins of one physical port."""
        return self.function.partition(":")[2]


def devices(root: Path) -> tuple[RdmaDevice, ...]:
    """All RDMA devices by name; what cannot be read is empty or 0, never an error."""
    folder = root / "sys/class/infiniband"
    return tuple(_device(path) for path in sorted(_entries(folder)))


def _device(path: Path) -> RdmaDevice:
    port = path / "ports/1"
    function = path / "device"
    counted = []
    for name in COUNTERS:
        text = read(port / "hw_counters" / name)
        if text:
            counted.append((name, whole(text)))
    return RdmaDevice(
        name=path.name,
        function=_slot(function),
        netdevs=tuple(sorted(entry.name for entry in _entries(function / "net"))),
        state=read(port / "state"),
        phys_state=read(port / "phys_state"),
        layer=read(port / "link_layer"),
        rate=_number(_RATE, read(port / "rate")),
        gids=_gids(port),
        counters=tuple(counted),
        link=Link(
            _number(_SPEED, read(function / "current_link_speed")),
            whole(read(function / "current_link_width")),
            _number(_SPEED, read(function / "max_link_speed")),
            whole(read(function / "max_link_width")),
        ),
        firmware=read(path / "fw_ver"),
    )


def _slot(function: Path) -> str:
    """The PCI address: PCI_SLOT_NAME of `uevent`, else the link's last part."""
    for line in read(function / "uevent").splitlines():
        if line.startswith("PCI_SLOT_NAME="):
            return line.partition("=")[2]
    try:
        return function.resolve().name if function.is_symlink() else ""
    except OSError:
        return ""


def _gids(port: Path) -> tuple[Gid, ...]:
    found = []
    for path in _entries(port / "gids"):
        if not (path.name.isascii() and path.name.isdigit() and len(path.name) < 6):
            continue
        address = _address(read(path))
        kind = read(port / "gid_attrs/types" / path.name)  # an empty slot fails with EINVAL: no kind, no entry
        if address and kind:
            found.append(Gid(int(path.name), address, kind, read(port / "gid_attrs/ndevs" / path.name)))
    return tuple(sorted(found, key=lambda gid: gid.index))


def _address(text: str) -> str:
    """`0000:...:ffff:c612:0001` as "198.18.0.1", other IPv6 compressed, "" for an empty or unreadable slot."""
    try:
        address = IPv6Address(text)
    except ValueError:
        return ""
    if not int(address):
        return ""
    mapped: IPv4Address | None = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(address)


def _number(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.match(text)
    return float(match.group(1)) if match else 0.0


def _entries(folder: Path) -> tuple[Path, ...]:
    """The folder's entries; none where it is absent, a file or locked."""
    try:
        return tuple(folder.iterdir())
    except OSError:
        return ()
