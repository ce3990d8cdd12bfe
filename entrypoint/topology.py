"""Switch, ring or triangle: how the boxes are cabled, told from the subnets of their rails. Pure.

A subnet that all members share is a switch (or the one cable of a pair). Where every subnet joins exactly two
members, the subnets are cables: four boxes in a loop are a ring, three each joined to both others a triangle.
Anything else is wrong cabling, and the finding names the cable and the ports to move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from core.plan import Topology
from core.refusal import Refusal
from entrypoint.roce import Rail

# Boxes of a cabled layout; TP=RING4 and TP=RING3 are accepted spellings of these.
LOOPS: Mapping[int, Topology] = {4: "ring", 3: "triangle"}
# A ring's graph: as many channels as NCCL_MAX_NCHANNELS, and what each carries, GB/s: eight times 3 are 192 Gb/s, what
# a healthy port carries (reported). The speed picks no route; NCCL estimates with it.
RING_CHANNELS = 8
RING_SPEED = 3


@dataclass(frozen=True)
class Cable:
    """One subnet between exactly two members: (lan, netdev) of both ends, lower lan first."""

    network: str
    ends: tuple[tuple[str, str], tuple[str, str]]

    @property
    def members(self) -> frozenset[str]:
        """The two lan addresses."""
        return frozenset(lan for lan, _ in self.ends)


@dataclass(frozen=True)
class Layout:
    """How the group is joined.

    order      lan addresses in rank order: the head first, then around the loop (or by address on a switch)
    cables     of a loop; empty on a switch
    neighbours lan -> (previous, next) around the loop; empty on a switch
    """

    topology: Topology
    order: tuple[str, ...]
    cables: tuple[Cable, ...] = ()
    neighbours: Mapping[str, tuple[str, str]] | None = None


def layout(
    rails: Mapping[str, Sequence[Rail]], wanted: str = "auto", head: str | None = None
) -> Layout | tuple[Refusal, ...]:
    """The layout of the members (lan -> rails), or what is wrong with the cabling.

    `wanted` is TOPOLOGY (auto, switch, ring, triangle); `head` starts the order, else the lowest lan address does.
    """
    members = tuple(sorted(rails, key=IPv4Address))
    first = head if head is not None and head in rails else members[0]
    by_network = networks(rails)
    shared = [network for network, ends in by_network.items() if {lan for lan, _ in ends} == set(members)]
    if wanted in ("auto", "switch") and (shared or len(members) <= 2 or wanted == "switch"):
        return Layout("switch", (first, *(lan for lan in members if lan != first)))
    cables = cables_of(by_network)
    if not cables and wanted == "auto":
        return Layout("switch", (first, *(lan for lan in members if lan != first)))
    kind = LOOPS.get(len(members))
    wrong = _wrong(members, cables, by_network, wanted, kind, only_link_local(rails))
    if wrong or kind is None:
        return wrong
    order = _around(first, members, cables)
    count = len(order)
    around = {lan: (order[(at - 1) % count], order[(at + 1) % count]) for at, lan in enumerate(order)}
    return Layout(kind, order, cables, around)


def networks(rails: Mapping[str, Sequence[Rail]]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Subnet -> (lan, netdev) of every rail in it. Link-local is one subnet on every cable and joins nobody."""
    found: dict[str, list[tuple[str, str]]] = {}
    for lan in sorted(rails, key=IPv4Address):
        for rail in rails[lan]:
            if not IPv4Network(rail.network).is_link_local or len(rails) == 2:
                found.setdefault(rail.network, []).append((lan, rail.netdev))
    return {network: tuple(ends) for network, ends in sorted(found.items())}


def only_link_local(rails: Mapping[str, Sequence[Rail]]) -> tuple[str, ...]:
    """Members of three or more whose rails all have automatic addresses: which cable is which cannot be told."""
    if len(rails) < 3:
        return ()
    return tuple(
        lan
        for lan in sorted(rails, key=IPv4Address)
        if rails[lan] and all(IPv4Network(rail.network).is_link_local for rail in rails[lan])
    )


def cables_of(by_network: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Cable, ...]:
    """The subnets that join exactly two members."""
    found = []
    for network, ends in by_network.items():
        if len(ends) == 2 and ends[0][0] != ends[1][0]:
            found.append(Cable(network, (ends[0], ends[1])))
    return tuple(found)


def neighbour_devices(
    layout: Layout, rails: Mapping[str, Sequence[Rail]], lan: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(RDMA devices to the previous box, to the next), one a PCIe root, by PCI domain. Empty on a switch."""
    if layout.neighbours is None:
        return (), ()
    before, after = layout.neighbours[lan]
    return _devices_to(layout, rails, lan, before), _devices_to(layout, rails, lan, after)


def nccl_block(layout: Layout, rails: Mapping[str, Sequence[Rail]], lan: str, graph_file: str = "") -> dict[str, str]:
    """NCCL's settings for this box on a loop; empty on a switch, where NCCL needs none.

    A ring reaches only neighbours, so trees are out and every channel must keep to its cable (`graph_file`, see
    `ring_graph`); a triangle has a cable to everybody and needs subnet-aware routing only.
    """
    if layout.neighbours is None:
        return {}
    before, after = neighbour_devices(layout, rails, lan)
    block = {
        "NCCL_IB_HCA": "=" + ",".join(dict.fromkeys((*before, *after))),
        "NCCL_CROSS_NIC": "1",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
        "NCCL_IB_ROCE_VERSION_NUM": "2",
    }
    if layout.topology == "ring":
        block["NCCL_ALGO"] = "Ring"
        if graph_file:
            block["NCCL_GRAPH_FILE"] = graph_file
    else:
        block["NCCL_IB_SUBNET_AWARE_ROUTING"] = "1"
    return block


def ring_graph(before: Sequence[str], after: Sequence[str], order: Sequence[str]) -> str:
    """NCCL_GRAPH_FILE of one box on a ring: channel c receives over the c-th device to the previous box and sends over
    the c-th to the next, so that no channel looks for a box that is not at the other end of its cable.

    `order`: all RDMA devices as libibverbs lists them. NCCL counts those of NCCL_IB_HCA in that order. "" where a
    device is not in it, or a neighbour has none. Only the ring's graph is given: NCCL_ALGO=Ring asks for no other.
    """
    chosen = [name for name in order if name in {*before, *after}]
    if not before or not after or not {*before, *after} <= set(chosen):
        return ""
    number = {name: format(at, "x") for at, name in enumerate(chosen)}
    channels = [
        f'    <channel><net dev="{number[before[at % len(before)]]}"/><gpu dev="0"/>'
        f'<net dev="{number[after[at % len(after)]]}"/></channel>'
        for at in range(RING_CHANNELS)
    ]
    graph = (
        f'  <graph id="0" pattern="4" crossnic="1" nchannels="{RING_CHANNELS}" speedintra="{RING_SPEED}" '
        f'speedinter="{RING_SPEED}" latencyinter="0" typeintra="LOC" typeinter="PHB" samechannels="0">'
    )
    return "\n".join(('<graphs version="1">', graph, *channels, "  </graph>", "</graphs>", ""))


def _devices_to(layout: Layout, rails: Mapping[str, Sequence[Rail]], lan: str, other: str) -> tuple[str, ...]:
    mine = {cable.network for cable in layout.cables if cable.members == {lan, other}}
    found = [rail for rail in rails[lan] if rail.network in mine]
    return tuple(rail.device for rail in sorted(found, key=lambda rail: (rail.root, rail.place)))


def _around(first: str, members: Sequence[str], cables: Sequence[Cable]) -> tuple[str, ...]:
    """The loop from `first` towards its lower neighbour. The cabling has been checked to be one loop."""
    order = [first]
    while len(order) < len(members):
        near = {lan for cable in cables if order[-1] in cable.members for lan in cable.members} - set(order)
        order.append(min(near, key=IPv4Address))
    return tuple(order)


def _wrong(
    members: Sequence[str],
    cables: Sequence[Cable],
    by_network: Mapping[str, Sequence[tuple[str, str]]],
    wanted: str,
    kind: Topology | None,
    link_local: Sequence[str],
) -> tuple[Refusal, ...]:
    """What keeps the cables from being one loop, each finding naming the ports."""
    if kind is None or (wanted != "auto" and wanted != kind):
        seen = f"{len(members)} boxes joined by {len(cables)} cable subnets"
        cure = "Join all boxes through one switch, or set TP and TOPOLOGY to a ring of 4 or a triangle of 3."
        return (Refusal("TOPOLOGY", seen, f"{wanted}: a ring has 4 boxes, a triangle 3", cure),)
    if link_local:
        seen = f"{', '.join(link_local)} have link-local addresses (169.254/16) on their cables"
        cure = (
            "All cables then are one subnet and nobody can tell them apart: give each cable a subnet of its own, one "
            "for each PCIe root, as docs/host-setup.md numbers them."
        )
        return (Refusal("cabling", seen, "a subnet for every cable", cure),)
    found = []
    for network, ends in by_network.items():
        if len(ends) == 1:
            lan, netdev = ends[0]
            cure = f"Give the netdev at the other end of {netdev}'s cable an address in {network}, or move the cable."
            found.append(
                Refusal("cabling", f"{lan} is alone in {network} ({netdev})", "two boxes on every cable", cure)
            )
        elif len({lan for lan, _ in ends}) == 1:
            ports = " and ".join(netdev for _, netdev in ends)
            cure = f"Give each of the two netdevs a subnet of its own, or move one end of the cable off {ends[0][0]}."
            found.append(Refusal("cabling", f"{network} is on {ports} of {ends[0][0]} alone", "two boxes", cure))
        elif len(ends) > 2:
            places = ", ".join(f"{lan} {netdev}" for lan, netdev in ends)
            cure = "Give every cable a subnet of its own, one for each PCIe root."
            found.append(Refusal("cabling", f"{network} is on {places}", "two boxes on every cable", cure))
    for lan in members:
        near = sorted(
            {other for cable in cables if lan in cable.members for other in cable.members} - {lan}, key=IPv4Address
        )
        if len(near) != 2:
            ports = ", ".join(netdev for cable in cables for end, netdev in cable.ends if end == lan) or "no port"
            seen = f"{lan} is cabled to {', '.join(near) or 'nobody'} ({ports})"
            cure = _move(lan, near, members, cables)
            found.append(Refusal("cabling", seen, "two neighbours for every box", cure))
    # Two distinct neighbours for each of 3 or 4 boxes leave one loop only.
    return tuple(found)


def _move(lan: str, near: Sequence[str], members: Sequence[str], cables: Sequence[Cable]) -> str:
    """Which end to plug where: a box with too few neighbours is joined to another with too few."""
    count = {
        other: len({end for cable in cables if other in cable.members for end in cable.members} - {other})
        for other in members
    }
    lonely = [other for other in members if other != lan and other not in near and count[other] < 2]
    if len(near) < 2 and lonely:
        return f"Cable a free port of {lan} to a free port of {lonely[0]}."
    if len(near) < 2:
        doubled = [cable for cable in cables if lan in cable.members]
        port = next((netdev for cable in doubled[2:] for end, netdev in cable.ends if end == lan), "its second port")
        return f"Move the cable on {port} of {lan} to a box that it is not joined to yet."
    extra = next(cable for cable in cables if cable.members == {lan, near[-1]})
    port = next(netdev for end, netdev in extra.ends if end == lan)
    return f"Unplug the cable on {port} of {lan}: it is one neighbour too many."
