"""Rows that need the other boxes: both ends of every cable alike, no address twice, cabling that closes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

from core.refusal import Refusal
from core.row import Row
from entrypoint.roce import Rail
from entrypoint.topology import LOOPS, networks, only_link_local
from preflight.checks.scene import link_to
from preflight.facts.types import Interface

ENDS, TWICE, CABLES, ALONE = "both ends", "address used twice", "cabling", "rail alone"
NAMES = (ENDS, TWICE, CABLES, ALONE)


def rails_of(interfaces: Sequence[Interface], subnets: Sequence[str] = ()) -> tuple[Rail, ...]:
    """The rails as far as a member's published interfaces tell: enough for cabling, MTU, speed and addresses.

    `subnets` (FABRIC_SUBNETS or CLUSTER_SUBNET) leave others out.
    """
    wanted = [IPv4Network(text, strict=False) for text in subnets]
    return tuple(
        Rail("", one.name, str(held.ip), str(held.network), None, one.speed / 1000, one.mtu, "")
        for one in interfaces
        if one.connectx and one.carrier
        for held in [held for held in one.networks() if not wanted or any(held.ip in network for network in wanted)][:1]
    )


def compare(members: Mapping[str, Sequence[Rail]]) -> tuple[Row, ...]:
    """Rows over all members (lan -> rails): addresses first, then MTU and speed of the ends of every subnet."""
    found = [*_twice(members), *_lengths(members), *_automatic(members), *_ends(members), *_alone(members)]
    return tuple(Row(row.name, row.level, row.seen, row.expected, row.cure, link_to(row.name)) for row in found)


def cabling(wrong: Sequence[Refusal]) -> tuple[Row, ...]:
    """What topology found, as rows."""
    return tuple(Row(CABLES, "FAIL", one.seen, one.expected, one.cure, link_to(CABLES)) for one in wrong)


def _twice(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    holders: dict[str, list[str]] = {}
    for lan, mine in members.items():
        for rail in mine:
            holders.setdefault(rail.address, []).append(f"{lan} {rail.netdev}")
    return [
        Row(TWICE, "FAIL", f"{address} on {' and '.join(where)}", "one box an address", "Change it on one of them.")
        for address, where in sorted(holders.items())
        if len(where) > 1
    ]


def _ends(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    by_netdev = {(lan, rail.netdev): rail for lan, mine in members.items() for rail in mine}
    found = []
    for network, ends in networks(members).items():
        sizes = {by_netdev[end].mtu for end in ends}
        if len(sizes) > 1:
            low = min(sizes)
            small = ", ".join(f"{lan} {netdev}" for lan, netdev in ends if by_netdev[lan, netdev].mtu == low)
            seen = f"{network}: MTU {low} on {small}, {max(sizes)} elsewhere"
            found.append(Row(ENDS, "WARN", seen, "one MTU", f"sudo ip link set <netdev> mtu {max(sizes)} on {small}."))
        rates = {by_netdev[end].rate for end in ends} - {0.0}  # 0: that box does not tell
        if len(rates) > 1:
            slow = ", ".join(f"{lan} {netdev}" for lan, netdev in ends if by_netdev[lan, netdev].rate == min(rates))
            seen = f"{network}: {min(rates):g} Gb/s on {slow}, {max(rates):g} elsewhere"
            cure = "Use one kind of cable, and set no lower speed at that switch port."
            found.append(Row(ENDS, "WARN", seen, "one speed", cure))
    return found


def _automatic(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    """Both ports of every box cabled and link-local: a loop looks like a switch then, and half of it is unreachable."""
    boxes = only_link_local(members)
    if len(boxes) != len(members) or len(members) not in LOOPS or not all(len(members[lan]) > 2 for lan in boxes):
        return []
    seen = f"169.254/16 on two ports of each of {len(boxes)} boxes: a loop and a switch look alike"
    cure = "Give every cable (on a switch: every port) a subnet of its own, as docs/host-setup.md numbers them."
    return [Row(CABLES, "WARN", seen, "addresses that tell the cables apart", cure)]


def _lengths(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    """Two subnets that overlap: the same wire with another prefix length, so that one end does not reach the other."""
    held = sorted({rail.network for mine in members.values() for rail in mine})
    found = []
    for one, other in combinations(held, 2):
        if not IPv4Network(one).overlaps(IPv4Network(other)):
            continue
        where = [
            f"{rail.network} on {lan} {rail.netdev}"
            for lan, mine in members.items()
            for rail in mine
            if rail.network in (one, other)
        ]
        cure = "Give all ends of one wire the same prefix length, in netplan."
        found.append(Row(ENDS, "WARN", f"subnets overlap: {', '.join(where)}", "one subnet a wire", cure))
    return found


def _alone(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    """One box lacks a rail subnet that all others share, or has one that nobody else is in."""
    if len(members) < 2:
        return []
    found = []
    held = {network: {lan for lan, _ in ends} for network, ends in networks(members).items()}
    switch = any(here == set(members) for here in held.values())
    for network, here in held.items():
        away = sorted(set(members) - here, key=IPv4Address)
        if len(away) == 1 and (len(here) > 2 or len(members) == 2 or (switch and len(here) == 2)):
            lan = away[0]
            seen = f"{lan} has no address in {network}; {', '.join(sorted(here, key=IPv4Address))} have"
            cure = f"On {lan}: is the cable in (ip -br link)? Give it an address of {network}: ./glm53 doctor there."
            found.append(Row(ALONE, "WARN", seen, "every rail subnet on every box", cure))
    return found
