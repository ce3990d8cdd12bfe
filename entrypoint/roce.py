"""The rails of a box without configuration: RDMA device, netdev, IPv4 and GID, read anew at every start. Pure.

A rail is an active RoCE port whose netdev is up and has an IPv4, link-local 169.254/16 included (NVIDIA's own
two-box guide makes those). Its GID is the RoCE v2 slot of that very address: the index differs per box, per device
and per boot, so nothing here is ever pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from preflight.facts.rdma import Gid, RdmaDevice
from preflight.facts.types import Interface

ROCE_V2 = "RoCE v2"


@dataclass(frozen=True)
class Rail:
    """One ConnectX function that carries traffic.

    gid_index is None when the port's table holds no RoCE v2 entry of `address`: RDMA would fail there.
    """

    device: str
    netdev: str
    address: str
    network: str
    gid_index: int | None
    rate: float
    mtu: int
    function: str

    @property
    def root(self) -> str:
        """PCI domain: the PCIe root this function hangs on."""
        return self.function.partition(":")[0]

    @property
    def place(self) -> str:
        """bus:device.function: equal for the twins of one physical port."""
        return self.function.partition(":")[2]


def rails(
    devices: Sequence[RdmaDevice],
    interfaces: Sequence[Interface],
    subnets: Sequence[str] = (),
    only_devices: Sequence[str] = (),
) -> tuple[Rail, ...]:
    """All rails by PCI function; one a device (the first address whose subnet is wanted, else the first).

    `subnets` (FABRIC_SUBNETS or CLUSTER_SUBNET) and `only_devices` (NCCL_IB_HCA) leave others out.
    """
    netdevs = {interface.name: interface for interface in interfaces}
    wanted = [IPv4Network(text, strict=False) for text in subnets]
    found = []
    for device in sorted(devices, key=lambda device: (device.place, device.root, device.name)):
        if not device.active or (only_devices and device.name not in only_devices):
            continue
        for name in device.netdevs:
            interface = netdevs.get(name)
            held = _chosen(interface, wanted) if interface is not None and interface.carrier else None
            if interface is None or held is None:
                continue
            found.append(
                Rail(
                    device=device.name,
                    netdev=name,
                    address=str(held.ip),
                    network=str(held.network),
                    gid_index=gid_of(device.gids, str(held.ip)),
                    rate=device.rate,
                    mtu=interface.mtu,
                    function=device.function,
                )
            )
            break
    return tuple(found)


def gid_of(gids: Sequence[Gid], address: str) -> int | None:
    """The lowest index of a RoCE v2 entry that is exactly `address`; None when the table has none."""
    return min((gid.index for gid in gids if gid.kind == ROCE_V2 and gid.address == address), default=None)


def twins_without_address(
    devices: Sequence[RdmaDevice], interfaces: Sequence[Interface]
) -> tuple[tuple[str, str], ...]:
    """(netdev with carrier and no IPv4, its twin that has one): half the bandwidth of that port lies idle."""
    netdevs = {interface.name: interface for interface in interfaces}
    up: dict[str, list[Interface]] = {}
    for device in devices:
        for name in device.netdevs:
            if device.active and name in netdevs and netdevs[name].carrier:
                up.setdefault(device.place, []).append(netdevs[name])
    found = []
    for twins in up.values():
        with_address = [interface.name for interface in twins if interface.addresses]
        without = [interface.name for interface in twins if not interface.addresses]
        found += [(name, with_address[0]) for name in without if with_address]
    return tuple(sorted(found))


def not_up(devices: Sequence[RdmaDevice], interfaces: Sequence[Interface]) -> tuple[str, ...]:
    """Netdevs of RDMA devices that carry no rail yet: no link, or no IPv4. A port without a cable has no device."""
    ready = {interface.name for interface in interfaces if interface.carrier and interface.addresses}
    ethernet = (device for device in devices if device.layer in ("Ethernet", ""))
    return tuple(
        sorted(name for device in ethernet for name in device.netdevs if not (device.active and name in ready))
    )


def nccl_environment(rails: Sequence[Rail], bootstrap: str) -> Mapping[str, str]:
    """NCCL's selection of devices and GIDs for this box; `bootstrap` is the exact netdev of the bootstrap socket.

    NCCL_IB_GID_INDEX holds for every device at once, so it is given only when all rails agree; otherwise NCCL picks
    by address family and RoCE version. No variable is ever empty: NCCL reads an empty index as 0.
    """
    usable = [rail for rail in rails if rail.gid_index is not None]
    if not usable:
        return {"NCCL_SOCKET_IFNAME": f"={bootstrap}"} if bootstrap else {}
    chosen = {
        "NCCL_IB_HCA": "=" + ",".join(rail.device for rail in usable),
        "NCCL_SOCKET_IFNAME": f"={bootstrap or usable[0].netdev}",
    }
    indexes = {rail.gid_index for rail in usable}
    if len(indexes) == 1:
        chosen["NCCL_IB_GID_INDEX"] = str(indexes.pop())
    else:
        chosen["NCCL_IB_ADDR_FAMILY"] = "AF_INET"
        chosen["NCCL_IB_ROCE_VERSION_NUM"] = "2"
    return chosen


def _chosen(interface: Interface, wanted: Sequence[IPv4Network]) -> IPv4Interface | None:
    held = interface.networks()
    if wanted:
        held = tuple(entry for entry in held if any(IPv4Address(entry.ip) in network for network in wanted))
    routable = [entry for entry in held if not entry.ip.is_link_local]
    return routable[0] if routable else held[0] if held else None
