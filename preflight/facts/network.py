"""Netdevs, their IPv4 addresses and the default route, from sysfs, procfs and rtnetlink. Standard library only:
`./glm53 doctor` runs on a bare host.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from preflight.facts.sysfs import read, whole
from preflight.facts.types import Interface

MELLANOX = "0x15b3"
LOOPBACK_TYPE = "772"

# A recorded tree has no live kernel to ask: this file holds lines "netdev a.b.c.d/len" instead.
RECORDED_ADDRESSES = Path("addresses")

# rtnetlink(7): message types, the dump flag, and the attribute that holds an interface's own address.
_GETADDR, _NEWADDR, _DONE, _ERROR = 22, 20, 3, 2
_DUMP = 0x301
_LOCAL = 2
_ANSWER_S = 2.0


def addresses(root: Path) -> dict[str, tuple[str, ...]]:
    """Netdev to its IPv4 addresses as "a.b.c.d/len", in the kernel's order. Lines that are no address are left out."""
    if root == Path("/"):
        pairs = live_addresses()
    else:
        lines = (line.split() for line in read(root / RECORDED_ADDRESSES).splitlines())
        pairs = [(words[0], words[1]) for words in lines if len(words) == 2]
    found: dict[str, list[str]] = {}
    for name, address in pairs:
        try:
            IPv4Interface(address)
        except ValueError:
            continue
        found.setdefault(name, []).append(address)
    return {name: tuple(held) for name, held in found.items()}


def live_addresses() -> list[tuple[str, str]]:
    """(netdev, "a.b.c.d/len") of every IPv4 address of this network namespace; alias labels count for their netdev."""
    request = struct.pack("=IHHIIB3xI", 24, _GETADDR, _DUMP, 1, 0, socket.AF_INET, 0)
    found: list[tuple[str, str]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_ANSWER_S)
        link.send(request)
        while True:
            data = link.recv(1 << 18)
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if kind in (_DONE, _ERROR) or length < 16:
                    return found
                if kind == _NEWADDR:
                    found += _address(data[16:length])
                data = data[(length + 3) & ~3 :]


def _address(body: bytes) -> list[tuple[str, str]]:
    """One RTM_NEWADDR message without its header: nothing when it has no local address or its netdev is gone."""
    _family, prefix, _flags, _scope, index = struct.unpack_from("=BBBBI", body)
    at = 8
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        if length < 4:
            break
        if kind == _LOCAL and length == 8:
            try:
                name = socket.if_indextoname(index)
            except OSError:
                return []
            return [(name, f"{socket.inet_ntoa(body[at + 4 : at + 8])}/{prefix}")]
        at += (length + 3) & ~3
    return []


def interfaces(root: Path) -> tuple[Interface, ...]:
    """All netdevs by name. What cannot be read (`carrier` of a downed netdev fails with EINVAL) is 0 or False."""
    held = addresses(root)
    folder = root / "sys/class/net"
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        paths = []
    found = []
    for path in paths:
        mtu = read(path / "mtu")
        if not mtu:
            continue  # e.g. bonding_masters, a file beside the netdevs
        found.append(
            Interface(
                name=path.name,
                addresses=held.get(path.name, ()),
                mtu=whole(mtu),
                carrier=read(path / "carrier") == "1",
                wireless=(path / "wireless").exists() or (path / "phy80211").exists(),
                loopback=read(path / "type") == LOOPBACK_TYPE,
                connectx=read(path / "device/vendor") == MELLANOX,
                speed=whole(read(path / "speed")),
            )
        )
    return tuple(found)


def default_route(root: Path, known: tuple[Interface, ...]) -> tuple[str, str] | None:
    """(netdev, own address on it) of the default route with the lowest metric; None without one.

    The address is the one whose subnet holds the gateway, else the netdev's first.
    """
    routes = []
    for line in read(root / "proc/net/route", 1 << 20).splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or fields[1] != "00000000" or fields[7] != "00000000":
            continue
        try:
            up = int(fields[3], 16) & 1
            gateway = IPv4Address(socket.inet_ntoa(struct.pack("=I", int(fields[2], 16))))
        except (ValueError, struct.error):
            continue
        if up:
            routes.append((whole(fields[6]), fields[0], gateway))
    by_name = {interface.name: interface for interface in known}
    for _, name, gateway in sorted(routes, key=lambda route: route[0]):
        networks = by_name[name].networks() if name in by_name else ()
        nearest = [held for held in networks if gateway in held.network] or list(networks)
        if nearest:
            return name, str(nearest[0].ip)
    return None
