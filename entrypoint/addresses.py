"""The two addresses of a box: `lan` (page, election, door) and `engine` (vLLM, GLOO, NCCL). Pure.

lan     the default route's address, or the one that reaches a peer; Wi-Fi counts, a ConnectX link-local never does
engine  the first rail whose subnet all members share, else lan
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from core.refusal import Refusal
from core.settings import Settings
from preflight.facts.types import BoxFacts, Interface

OVERRIDES = ("LAN_ADDRESS", "VLLM_HOST_IP")

# (address, netdev, subnet) of one IPv4 address of a box.
Held = tuple[str, str, IPv4Network]


def lan_address(facts: BoxFacts, settings: Settings, peers: Sequence[str] = ()) -> Refusal | tuple[str, str]:
    """(address, netdev) under which the other boxes reach this one, or why there is none.

    `peers` are host[:port] as in PEERS; host names among them are ignored here.
    """
    lab = settings["ENGINE_PROFILE"] == "lab-cpu"
    for name in OVERRIDES:
        text = settings.text(name)
        if text and not (name == "VLLM_HOST_IP" and _link_local(text)):  # a rail address says nothing of the LAN
            return _checked(name, text, facts, lab)
    if facts.default_route is not None:
        return facts.default_route[1], facts.default_route[0]
    candidates = lan_candidates(facts)
    for peer in _addresses(peers):
        for address, netdev, network in candidates:
            if peer in network:
                return address, netdev
    if len(candidates) == 1:
        return candidates[0][0], candidates[0][1]
    seen = ", ".join(f"{address} on {netdev}" for address, netdev, _ in candidates) or "no usable IPv4 address"
    return Refusal(
        "LAN_ADDRESS",
        f"no default route; {seen}",
        "one address that the other boxes reach",
        "Set LAN_ADDRESS in compose/.env to this box's address on the common network.",
    )


def lan_candidates(facts: BoxFacts) -> list[Held]:
    """Everything that may serve as a lan address, wired before wireless."""
    found = [
        (str(held.ip), interface.name, held.network)
        for interface in sorted(facts.interfaces, key=lambda interface: interface.wireless)
        for held in interface.networks()
        if not interface.loopback and interface.carrier
    ]
    return [entry for entry in found if not _link_local(entry[0])]


def engine_addresses(
    members: Mapping[str, Sequence[Interface]], subnets: Sequence[str] = ()
) -> dict[str, tuple[str, str]]:
    """lan address -> (engine address, netdev) for every member, given the members' interfaces.

    The first rail subnet that all share wins; `subnets` (FABRIC_SUBNETS) puts an order on them and leaves
    others out. On one subnet with several candidates the netdev name that all boxes have is preferred.
    """
    wanted = [IPv4Network(text, strict=False) for text in subnets]
    rails = {lan: _rails(interfaces) for lan, interfaces in members.items()}
    first = next(iter(sorted(members, key=IPv4Address)), None)
    order = wanted or ([network for _, _, network in rails[first]] if first else [])
    for network in order:
        chosen = _shared(network, rails)
        if chosen is not None:
            return chosen
    return {lan: (lan, _netdev_of(lan, interfaces)) for lan, interfaces in members.items()}


def _rails(interfaces: Sequence[Interface]) -> list[Held]:
    """Every address of a ConnectX netdev that is up: the first PCIe root (enp...) before the second (enP2p...)."""
    return [
        (str(held.ip), interface.name, held.network)
        for interface in sorted(interfaces, key=lambda interface: interface.name.lower())
        for held in interface.networks()
        if interface.connectx and interface.carrier
    ]


def _shared(network: IPv4Network, rails: Mapping[str, list[Held]]) -> dict[str, tuple[str, str]] | None:
    """One distinct address in `network` for every member, or None."""
    inside = {lan: [rail for rail in mine if IPv4Address(rail[0]) in network] for lan, mine in rails.items()}
    if not all(inside.values()):
        return None
    common = set.intersection(*({name for _, name, _ in mine} for mine in inside.values()))
    chosen = {}
    for lan, mine in inside.items():
        address, netdev, _ = next((rail for rail in mine if rail[1] in common), mine[0])
        chosen[lan] = (address, netdev)
    return chosen if len({address for address, _ in chosen.values()}) == len(chosen) else None


def _netdev_of(address: str, interfaces: Sequence[Interface]) -> str:
    for interface in interfaces:
        if any(str(held.ip) == address for held in interface.networks()):
            return interface.name
    loopbacks = [interface.name for interface in interfaces if interface.loopback]
    return loopbacks[0] if loopbacks and address.startswith("127.") else ""


def _checked(name: str, text: str, facts: BoxFacts, lab: bool) -> Refusal | tuple[str, str]:
    """An address somebody set: it must be this box's, reachable from others, and no rail's link-local one."""
    mine = [str(held.ip) for interface in facts.interfaces for held in interface.networks() if not interface.loopback]
    cure = f"Set {name} to one of this box's addresses ({', '.join(mine) or 'it has none'}), or leave it unset."
    try:
        address = IPv4Address(text)
    except ValueError:
        return Refusal(name, repr(text), "an IPv4 address of this box", cure)
    if address.is_loopback and not lab:
        return Refusal(name, text, "an address that other boxes reach", cure)
    if address.is_unspecified or address.is_link_local or address.is_multicast:
        return Refusal(name, text, "an address on the common network", cure)
    interface = facts.interface_of(text)
    if interface is None:
        return Refusal(name, text, "an address of this box", cure)
    return text, interface.name


def _addresses(peers: Sequence[str]) -> list[IPv4Address]:
    found = []
    for peer in peers:
        try:
            found.append(IPv4Address(peer.split(":")[0]))
        except ValueError:
            continue
    return found


def _link_local(text: str) -> bool:
    return text.startswith("169.254.")
