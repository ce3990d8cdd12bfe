"""From what a round measured to rows: who is missing, what differs, what is slow and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from core.row import Row
from fabric.round import ENOUGH, Outcome
from preflight.checks.scene import link_to

ARRIVE, DIFFER, BANDWIDTH, COMPUTE, TRANSPORT = (
    "boxes in the fabric check",
    "boxes differ",
    "fabric bandwidth",
    "compute probe",
    "NCCL transport",
)
NAMES = (ARRIVE, DIFFER, BANDWIDTH, COMPUTE, TRANSPORT)
GPU_TFLOPS = 1.0  # what any GPU exceeds: shared CPUs (the lab) are not compared
LATCHED = (8.0, 25.0)  # Gb/s of the slow state a ConnectX-7 latches (reported 12-13)
# What to do about a difference; "" and whatever is not named here comes with the image.
CURES: Mapping[str, str] = {
    "kernel": "Boot the same kernel on all boxes, and hold it: sudo apt-mark hold linux-image-<release>.",
    "driver": "Install the same NVIDIA driver on all boxes, then reboot.",
    "NIC firmware": "Bring all boxes to the same firmware: fwupdmgr update, then power off and on.",
    "GPU clock limits": "Look at the power supply and the air of the box that has one; unplug it for a minute.",
    "GPU top clock": "Take locked clocks off: sudo nvidia-smi -rgc. The boxes wait for the slowest one.",
    "PCIe roots": "Give both twins of a port an address: see rail addresses in ./glm53 doctor of both boxes.",
    "rails": "Compare ./glm53 doctor of both boxes: cables and addresses.",
    "rail rate": "Use one kind of cable, and set no lower speed at a switch port.",
    "MTU": "Set 9000 on every rail of every box: sudo ip link set <netdev> mtu 9000, and in netplan.",
    "checkpoint": "Download the same revision on all boxes; ./glm53 doctor --deep compares every byte.",
    "drafter": "Download the same revision on all boxes; ./glm53 doctor --deep compares every byte.",
    "": "Bring the same to all boxes: ./glm53 image send, then up.",
}
KNOB = "knob "  # a fact of this name is one box's own setting: shown, no fault
UNPLUG = "Shut every box down, unplug power for a minute, start again: a reboot does not clear the slow state."


def rows(
    outcome: Outcome,
    names: Sequence[str],
    expected_gbps: float,
    rails: int,
    variants: Mapping[str, float] | None = None,
) -> tuple[Row, ...]:
    """Rows of one check. `names` by rank; `variants`: "Ring", "Tree" or a device -> Gb/s measured apart."""
    found = [*_arrival(outcome, names), *differences(outcome.facts, names)]
    if outcome.complete:
        found += [_bandwidth(outcome, names, expected_gbps, variants or {})]
        found += [*_compute(outcome, names), *_transport(outcome, rails)]
        times = ", ".join(f"{size} B {value:.0f} us" for size, value in outcome.latency_us.items())
        found.append(Row(BANDWIDTH, "info", f"all-reduce latency: {times}"))
    return tuple(Row(one.name, one.level, one.seen, one.expected, one.cure, link_to(one.name)) for one in found)


def _arrival(outcome: Outcome, names: Sequence[str]) -> list[Row]:
    found = []
    for rank in outcome.missing:
        cure = "Look at that box's page; a firewall between the boxes drops the check's port, or its kit is paused."
        found.append(Row(ARRIVE, "WARN", f"{names[rank]} did not arrive", "all boxes", cure))
    for rank, why in outcome.blamed.items():
        cure = "Look at that box: its page, ./glm53 doctor there, and its power."
        found.append(Row(ARRIVE, "WARN", f"{names[rank]}: {why}", "all boxes to the end", cure))
    if outcome.error and not found:
        cure = "The engine will meet the same fault: cure it before a long load. FABRIC_CHECK=0 leaves the check out."
        found.append(Row(ARRIVE, "WARN", f"{outcome.error} (phase {outcome.phase})", "a finished check", cure))
    return found


def differences(facts: Mapping[int, Mapping[str, str]], names: Sequence[str]) -> list[Row]:
    """One row for every fact that is not equal everywhere, with who has what."""
    found = []
    for name in sorted({name for held in facts.values() for name in held}):
        holders: dict[str, list[str]] = {}
        for rank in sorted(facts):
            holders.setdefault(facts[rank].get(name, "nothing"), []).append(names[rank])
        if len(holders) > 1:
            seen = "; ".join(f"{value} on {', '.join(who)}" for value, who in holders.items())
            if name.startswith(KNOB):
                found.append(Row(DIFFER, "info", f"{name}: {seen}"))
                continue
            cure = CURES.get(name, CURES[""])
            found.append(Row(DIFFER, "WARN", f"{name}: {seen}", "the same on all boxes", cure))
    return found


def low(gbps: float, expected_gbps: float) -> bool:
    """True when a bandwidth deserves a closer look; the same on every box, as all know the same numbers."""
    return bool(expected_gbps) and gbps < ENOUGH * expected_gbps


def latched(gbps: float, variants: Mapping[str, float]) -> bool:
    """The state that only unplugging clears: 8-25 Gb/s, or Tree faster than Ring."""
    ring, tree = variants.get("Ring"), variants.get("Tree")
    if ring is not None and tree is not None and tree > ring:
        return True
    return LATCHED[0] <= gbps <= LATCHED[1]


def slow_box(edges: Mapping[str, float], world: int) -> int | None:
    """The rank whose every pair is slow while those without it are at least twice as fast; None when no one is.

    A pair is as fast as its slower direction: who sends slowly is slow towards everybody.
    """
    pairs: dict[frozenset[str], float] = {}
    for edge, value in edges.items():
        ends = frozenset(edge.split(">"))
        pairs[ends] = min(value, pairs.get(ends, value))
    found: dict[int, float] = {}
    for rank in range(world):
        with_it = [value for ends, value in pairs.items() if str(rank) in ends]
        without = [value for ends, value in pairs.items() if str(rank) not in ends]
        if with_it and without and max(with_it) * 2 < median(without):
            found[rank] = median(without) / max(max(with_it), 1e-9)
    return max(found, key=lambda rank: found[rank], default=None)


def _speed(gbps: float) -> str:
    return f"{gbps:.1f}" if gbps >= 1 else f"{gbps:.2g}"


def _bandwidth(outcome: Outcome, names: Sequence[str], expected: float, variants: Mapping[str, float]) -> Row:
    seen = f"all-reduce {_speed(outcome.gbps)} Gb/s bus bandwidth"
    if not low(outcome.gbps, expected):
        return Row(BANDWIDTH, "ok" if expected else "info", seen, f"{expected:.0f} Gb/s" if expected else "")
    apart = [f"{name} {_speed(value)}" for name, value in variants.items()]
    apart += [f"{_edge(edge, names)} {_speed(value)}" for edge, value in outcome.edges.items()]
    seen += f" ({'; '.join(apart)})" if apart else ""
    slow = slow_box(outcome.edges, len(names))
    if slow is not None:
        cure = f"Look at {names[slow]}: MTU, cable, switch port, and whatever shapes its traffic."
        return Row(BANDWIDTH, "WARN", f"{names[slow]} is slow: {seen}", f"{expected:.0f} Gb/s", cure)
    cure = (
        UNPLUG if latched(outcome.gbps, variants) else "Compare MTU, PCIe link and cable of every rail: ./glm53 doctor."
    )
    return Row(BANDWIDTH, "WARN", seen, f"{expected:.0f} Gb/s", cure)


def _edge(edge: str, names: Sequence[str]) -> str:
    source, _, target = edge.partition(">")
    return f"{names[int(source)]} to {names[int(target)]}"


def _compute(outcome: Outcome, names: Sequence[str]) -> list[Row]:
    if len(outcome.speeds) < 2 or max(outcome.speeds) < GPU_TFLOPS:
        return []
    usual = median(outcome.speeds)
    return [
        Row(
            COMPUTE,
            "WARN",
            f"{names[rank]} computes {speed:.2f} TFLOP/s, the others {usual:.2f}",
            f"within {1 - ENOUGH:.0%} of each other",
            "Look at its clock limits (./glm53 doctor) and power supply; unplug it for a minute.",
        )
        for rank, speed in enumerate(outcome.speeds)
        if speed < ENOUGH * usual
    ]


def _transport(outcome: Outcome, rails: int) -> list[Row]:
    if rails and "NET/Socket" in outcome.transport:
        cure = "Read GIDs and rail addresses in ./glm53 doctor: NCCL found no usable RDMA device and said nothing."
        return [Row(TRANSPORT, "FAIL", "NCCL talks over sockets although there are rails", "NET/IB", cure)]
    return []
