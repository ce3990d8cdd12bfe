"""The netplan text that would address this box's ConnectX netdevs. Printed, never written: the user decides. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Interface

from preflight.facts.rdma import RdmaDevice
from preflight.facts.types import Interface

FIRST_SUBNET = "198.18.{rail}.{host}/24"  # 198.18.0.0/15 is set aside for benchmarks and routed nowhere


def snippet(devices: Sequence[RdmaDevice], interfaces: Sequence[Interface], host: int = 0) -> str:
    """Addresses as they are, missing ones filled in: one subnet a netdev, this box's number `host` in each.

    `host` 0: taken from an address that a rail has, else from the first other IPv4, else 1.
    """
    held = {interface.name: interface for interface in interfaces}
    order = sorted(devices, key=lambda device: (device.place, device.root, device.name))
    names = [name for device in order for name in device.netdevs if name in held]
    number = host or _number(names, held)
    lines = ["network:", "  version: 2", "  ethernets:"]
    for rail, name in enumerate(names):
        kept = [text for text in held[name].addresses if not IPv4Interface(text).is_link_local]
        address = kept[0] if kept else FIRST_SUBNET.format(rail=rail, host=number)
        lines += [f"    {name}:", f"      addresses: [{address}]", "      mtu: 9000"]
    return "\n".join(lines)


def _number(names: Sequence[str], held: dict[str, Interface]) -> int:
    rails = [text for name in names for text in held[name].addresses]
    others = [text for one in held.values() if not one.loopback for text in one.addresses]
    for text in (*rails, *others):
        address = IPv4Interface(text).ip
        if not address.is_link_local:
            return int(address) % 256 or 1
    return 1
