"""Rows about the rails of one box: ports, addresses, GIDs, MTU, PCIe, counters."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface

from core.row import Row
from entrypoint.roce import twins_without_address
from preflight.checks.scene import Scene, row
from preflight.netplan import snippet

RATE = 200.0  # Gb/s of a healthy ConnectX-7 port of these boxes (reported)
ROCE_MTU = 4200  # what RoCE's 4096-byte path MTU needs
WHERE_SET = "where it is set (compose/.env, the shell, an nccl.conf)"
FLAPS = 10  # carrier changes since boot; two or three belong to any boot
# Counters whose growth means loss on the way; the others (congestion marks) are normal under load.
LOSSES = ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "rnr_nak_retry_err", "rx_icrc_encapsulated")

LOSS_CURE = "Set PFC or ECN for RoCE at the switch, MTU 9000 at both ends; change the cable if one box has it."


def ports(scene: Scene) -> Iterator[Row]:
    """A port that is there but down, slow, or slower than the others."""
    found = [device for device in scene.survey.devices if device.layer in ("Ethernet", "")]
    if not found and not scene.wanted.cpu:
        cure = "Plug the fabric cable in (an uncabled port has no PCI device), power the box off and on, look again."
        yield row("FAIL", "no RDMA device under /sys/class/infiniband", "two for every cable", cure)
    for device in found:
        if not device.active:
            names = ", ".join(device.netdevs) or "no netdev"
            seen = f"{device.name} ({names}) is {device.state or 'unreadable'}, {device.phys_state or 'link unknown'}"
            yield row("WARN", seen, "4: ACTIVE, 5: LinkUp", f"Reseat the cable of {names} at both ends.")
    rates = {device.name: device.rate for device in found if device.active}
    for name, rate in rates.items():
        if rate < RATE:
            cure = "Use a 200G cable and port, and set no lower speed at the switch."
            yield row("WARN", f"{name} runs at {rate:g} Gb/s", f"{RATE:g} Gb/s", cure)


def addresses(scene: Scene) -> Iterator[Row]:
    """No rail at all, or a twin of a rail without an address: half of that port lies idle."""
    if not scene.rails and any(device.active for device in scene.survey.devices):
        plan = snippet(scene.survey.devices, scene.survey.box.interfaces)
        cure = f"Give every ConnectX netdev an address, the same subnet on all boxes:\n{plan}"
        narrowed = scene.wanted.subnets or scene.wanted.devices
        if narrowed:
            cure = f"Unset FABRIC_SUBNETS, CLUSTER_SUBNET and NCCL_IB_HCA; seen: {', '.join(narrowed)}."
        yield row("FAIL", "no ConnectX netdev that is up has a usable IPv4 address", "one on every netdev", cure)
    if scene.wanted.subnets or scene.wanted.devices:
        return
    for netdev, twin in twins_without_address(scene.survey.devices, scene.survey.box.interfaces):
        plan = snippet(scene.survey.devices, scene.survey.box.interfaces)
        seen = f"{netdev} is up and has no IPv4; its twin {twin} has one"
        yield row("WARN", seen, "an address on both twins: two PCIe roots, twice the bandwidth", f"Add:\n{plan}")


def roots(scene: Scene) -> Iterator[Row]:
    """All rails hang on one PCIe root, which tops out near 110 Gb/s (reported)."""
    used = {rail.root for rail in scene.rails}
    if len(used) == 1:
        names = ", ".join(rail.netdev for rail in scene.rails)
        others = [name for one in scene.survey.devices if one.root not in used for name in one.netdevs]
        cure = f"Bring {' or '.join(others) or 'a netdev of the other root'} up with an address of its own subnet."
        yield row("WARN", f"{names}: PCIe root {used.pop()} only", "rails on two roots", cure)


def gids(scene: Scene) -> Iterator[Row]:
    """A rail without a RoCE v2 entry of its address cannot carry RDMA; a pinned index is sooner or later another's."""
    tables = {device.name: device.gids for device in scene.survey.devices}
    for rail in scene.rails:
        if rail.gid_index is None:
            held = ", ".join(f"{gid.index}: {gid.address} {gid.kind}" for gid in tables[rail.device]) or "empty"
            cure = f"sudo ip link set {rail.netdev} down && sudo ip link set {rail.netdev} up, then look again."
            yield row("FAIL", f"{rail.device} has no RoCE v2 GID of {rail.address} ({held})", "one", cure)
        elif scene.wanted.gid_index and scene.wanted.gid_index != str(rail.gid_index):
            seen = f"NCCL_IB_GID_INDEX={scene.wanted.gid_index}, but {rail.device} has {rail.address} at"
            cure = f"Remove NCCL_IB_GID_INDEX {WHERE_SET}: the kit finds the index at every start."
            yield row("FAIL", f"{seen} {rail.gid_index}", "no pinned index", cure)
    if scene.wanted.gid_index and scene.rails:
        cure = f"Remove NCCL_IB_GID_INDEX {WHERE_SET}: it moves when an address or the box is set up anew."
        yield row("WARN", f"NCCL_IB_GID_INDEX={scene.wanted.gid_index} is pinned", "unset", cure)
    if scene.rails:
        chosen = ", ".join(f"{rail.device} {rail.gid_index} ({rail.address})" for rail in scene.rails)
        yield row("info", f"GIDs: {chosen}")


def mtu(scene: Scene) -> Iterator[Row]:
    """RoCE's path MTU of 4096 needs a netdev MTU of 4200; below, every message is cut four times as often."""
    for rail in scene.rails:
        if rail.mtu < ROCE_MTU:
            cure = f"sudo ip link set {rail.netdev} mtu 9000, and mtu: 9000 in netplan; the same at the other end."
            yield row("WARN", f"{rail.netdev} has MTU {rail.mtu}", "9000", cure)
    used = {rail.mtu for rail in scene.rails if rail.mtu >= ROCE_MTU}
    if len(used) > 1:
        seen = ", ".join(f"{rail.netdev} {rail.mtu}" for rail in scene.rails)
        yield row("WARN", seen, "one MTU on all rails", "Set mtu: 9000 on all of them.")


def pcie(scene: Scene) -> Iterator[Row]:
    """A link that trained below what the function can."""
    for device in scene.survey.devices:
        link = device.link
        if 0 < link.speed < link.max_speed or 0 < link.width < link.max_width:
            seen = f"{device.name} at {link.speed:g} GT/s x{link.width}"
            cure = "Power the box off, unplug it for a minute, start it again; a reboot does not retrain the link."
            yield row("WARN", seen, f"{link.max_speed:g} GT/s x{link.max_width}", cure)


def flaps(scene: Scene) -> Iterator[Row]:
    """Carrier lost and found again and again."""
    changes = {netdev.name: netdev.carrier_changes for netdev in scene.survey.host.netdevs}
    for rail in scene.rails:
        if changes.get(rail.netdev, 0) > FLAPS:
            seen = f"{rail.netdev}: {changes[rail.netdev]} carrier changes since boot"
            yield row("WARN", seen, f"at most {FLAPS}", "Reseat or change the cable; look at the switch port.")


def retransmits(scene: Scene) -> Iterator[Row]:
    """Loss on the way, as rates: a total since boot says nothing of now."""
    for device, counter, rate in scene.survey.rates:
        if counter in LOSSES:
            yield row("WARN", f"{device}: {counter} grows by {rate:.1f}/s", "no growth", LOSS_CURE)


def persistence(scene: Scene) -> Iterator[Row]:
    """An address that no file holds is gone after a reboot. Known only where those files can be read (the host)."""
    text = scene.survey.configured
    if text is None:
        return
    automatic = "link-local" in text
    lost = [
        f"{rail.address} on {rail.netdev}"
        for rail in scene.rails
        if rail.address not in text and not (automatic and IPv4Interface(rail.address).is_link_local)
    ]
    if lost:
        plan = snippet(scene.survey.devices, scene.survey.box.interfaces)
        seen = f"in no netplan, NetworkManager or networkd file: {', '.join(lost)}"
        cure = f"Save this as /etc/netplan/60-rails.yaml (chmod 600), then sudo netplan try:\n{plan}"
        yield row("WARN", seen, "addresses that a reboot keeps", cure)


def forwarding(scene: Scene) -> Iterator[Row]:
    """On a ring of four the opposite box is reached through a neighbour."""
    if scene.wanted.loop and scene.wanted.boxes == 4 and not scene.survey.host.forwarding:
        cure = "sudo sysctl -w net.ipv4.ip_forward=1 (and /etc/sysctl.d); let DOCKER-USER accept between the rails."
        yield row("WARN", "net.ipv4.ip_forward is 0 on a ring", "1: the opposite box is two hops away", cure)


def wireless(scene: Scene) -> Iterator[Row]:
    """The lan address is on Wi-Fi: multicast is often dropped there, and sleep drops the box."""
    for interface in scene.survey.box.interfaces:
        if interface.wireless and interface.name == scene.wanted.lan_netdev:
            cure = "Cable the LAN port, or name the other boxes in PEERS=."
            yield row("WARN", f"the lan address is on {interface.name}, a Wi-Fi netdev", "a cable", cure)


def nccl_settings(scene: Scene) -> Iterator[Row]:
    """NCCL settings from elsewhere win over what the kit finds."""
    for source, values in scene.survey.host.nccl_sources.items():
        for name, value in values.items():
            if source == "environment" and value and name not in ("NCCL_IB_GID_INDEX", "NCCL_NET", "NCCL_IB_DISABLE"):
                continue  # a knob, or somebody's choice that the plan shows
            seen = f"{name}={value or '(empty, which NCCL reads as 0)'} from {source}"
            yield row("WARN", seen, "no NCCL setting outside the kit", f"Remove {name} from {source}.")
