"""What is known of a box, as plain data; addresses are text, sizes are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Interface
from typing import Any


@dataclass(frozen=True)
class Interface:
    """One netdev. `addresses` are IPv4 as "a.b.c.d/len"; `connectx`: its PCI device is an RDMA-capable Mellanox;
    `speed` in Mb/s, 0 unknown.
    """

    name: str
    addresses: tuple[str, ...]
    mtu: int
    carrier: bool
    wireless: bool = False
    loopback: bool = False
    connectx: bool = False
    speed: int = 0

    def networks(self) -> tuple[IPv4Interface, ...]:
        """The addresses with their subnets."""
        return tuple(IPv4Interface(text) for text in self.addresses)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Interface:
        """The interface of `as_dict()`'s JSON. Raises ValueError, KeyError or TypeError on anything else."""
        addresses = tuple(str(IPv4Interface(text)) for text in data["addresses"])
        flags = {name: bool(data[name]) for name in ("carrier", "wireless", "loopback", "connectx")}
        speed = int(data.get("speed", 0))  # a kit before 2026-12 does not tell
        return cls(name=str(data["name"]), addresses=addresses, mtu=int(data["mtu"]), speed=speed, **flags)


@dataclass(frozen=True)
class Memory:
    """/proc/meminfo in bytes: `free` is what CUDA can take at once, `available` counts page cache too."""

    total: int
    available: int
    free: int
    swap_used: int


@dataclass(frozen=True)
class BoxFacts:
    """One box.

    default_route  (netdev, this box's address on it) or None
    shm_bytes      bytes in use under /dev/shm
    disks          path -> (total, free) bytes; a path that does not exist is left out
    gpus           devices NVML counts; None where there is no NVML
    """

    hostname: str
    boot_id: str
    kernel: str
    interfaces: tuple[Interface, ...]
    default_route: tuple[str, str] | None
    memory: Memory
    shm_bytes: int
    disks: Mapping[str, tuple[int, int]]
    gpus: int | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def interface_of(self, address: str) -> Interface | None:
        """The netdev that holds `address`; any 127.0.0.0/8 address is the loopback's."""
        for interface in self.interfaces:
            if any(str(held.ip) == address for held in interface.networks()):
                return interface
            if interface.loopback and address.startswith("127."):
                return interface
        return None
