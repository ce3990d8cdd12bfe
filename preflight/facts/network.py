"""Netdevs, their IPv4 addresses and the default route, from sysfs, procfs and getifaddrs."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address
from pathlib import Path

from preflight.facts.types import Interface

MELLANOX = "0x15b3"
LOOPBACK_TYPE = "772"

# A recorded tree has no live kernel to ask: this file holds lines "netdev a.b.c.d/len" instead.
RECORDED_ADDRESSES = Path("addresses")


def _text(path: Path, default: str = "") -> str:
    """The stripped content, or `default`: `carrier` of a downed netdev fails with EINVAL, absent files are normal."""
    try:
        return path.read_text().strip()
    except OSError:
        return default


def addresses(root: Path) -> dict[str, tuple[str, ...]]:
    """Netdev to its IPv4 addresses as "a.b.c.d/len", in the kernel's order."""
    found: dict[str, list[str]] = {}
    if root == Path("/"):
        import ifaddr  # here: only a live box needs it, and it costs start-up time

        for adapter in ifaddr.get_adapters():
            for ip in adapter.ips:
                if isinstance(ip.ip, str):  # IPv6 addresses are tuples there
                    netdev = adapter.name.partition(":")[0]  # an alias is named eth0:1 there
                    found.setdefault(netdev, []).append(f"{ip.ip}/{ip.network_prefix}")
    else:
        for line in _text(root / RECORDED_ADDRESSES).splitlines():
            name, address = line.split()
            found.setdefault(name, []).append(address)
    return {name: tuple(held) for name, held in found.items()}


def interfaces(root: Path) -> tuple[Interface, ...]:
    """All netdevs by name."""
    held = addresses(root)
    folder = root / "sys/class/net"
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / "mtu").exists():
            continue  # e.g. bonding_masters, a file beside the netdevs
        found.append(
            Interface(
                name=path.name,
                addresses=held.get(path.name, ()),
                mtu=int(_text(path / "mtu", "0")),
                carrier=_text(path / "carrier") == "1",
                wireless=(path / "wireless").exists() or (path / "phy80211").exists(),
                loopback=_text(path / "type") == LOOPBACK_TYPE,
                connectx=_text(path / "device/vendor") == MELLANOX,
            )
        )
    return tuple(found)


def default_route(root: Path, known: tuple[Interface, ...]) -> tuple[str, str] | None:
    """(netdev, own address on it) of the default route with the lowest metric; None without one.

    The address is the one whose subnet holds the gateway, else the netdev's first.
    """
    routes = []
    for line in _text(root / "proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == "00000000" and fields[7] == "00000000" and int(fields[3], 16) & 1:
            gateway = IPv4Address(socket.inet_ntoa(struct.pack("=I", int(fields[2], 16))))
            routes.append((int(fields[6]), fields[0], gateway))
    by_name = {interface.name: interface for interface in known}
    for _, name, gateway in sorted(routes, key=lambda route: route[0]):
        networks = by_name[name].networks() if name in by_name else ()
        nearest = [held for held in networks if gateway in held.network] or list(networks)
        if nearest:
            return name, str(nearest[0].ip)
    return None
