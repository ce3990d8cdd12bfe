"""Rows that need the other boxes: both ends of every cable alike, no address twice, cabling that closes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from core.refusal import Refusal
from core.row import Row
from entrypoint.roce import Rail
from entrypoint.topology import networks
from preflight.checks.scene import link_to
from preflight.facts.types import Interface

ENDS, TWICE, CABLES, ALONE = "both ends", "address used twice", "cabling", "rail alone"
NAMES = (ENDS, TWICE, CABLES, ALONE)


def rails_of(interfaces: Sequence[Interface]) -> tuple[Rail, ...]:
    """The rails as far as a member's published interfaces tell: enough for cabling, MTU and addresses."""
    return tuple(
        Rail("", one.name, str(held.ip), str(held.network), None, 0.0, one.mtu, "")
        for one in interfaces
        if one.connectx and one.carrier
        for held in one.networks()[:1]
    )


def compare(members: Mapping[str, Sequence[Rail]]) -> tuple[Row, ...]:
    """Rows over all members (lan -> rails): addresses first, then MTU of the ends of every subnet."""
    found = [*_twice(members), *_ends(members), *_alone(members)]
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
    return found


def _alone(members: Mapping[str, Sequence[Rail]]) -> list[Row]:
    """One box lacks a rail subnet that all others share, or has one that nobody else is in."""
    if len(members) < 2:
        return []
    found = []
    for network, ends in networks(members).items():
        here = {lan for lan, _ in ends}
        away = sorted(set(members) - here, key=IPv4Address)
        if (len(here) > 2 and len(away) == 1) or (len(here) == 1 and len(members) == 2):
            lan = away[0]
            seen = f"{lan} has no address in {network}; {', '.join(sorted(here, key=IPv4Address))} have"
            cure = f"Give the matching ConnectX netdev of {lan} an address in {network}; see ./glm53 doctor there."
            found.append(Row(ALONE, "WARN", seen, "every rail subnet on every box", cure))
    return found
