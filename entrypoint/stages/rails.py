"""The boot's view of the fabric: this box's rails with devices and GIDs, all boxes' rails, how they are cabled.

GIDs and devices are read again whenever they are used: an index moves when an address is set up anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from core.log import log
from core.refusal import Refusal
from core.row import Row
from core.settings import Settings
from entrypoint.boot import Boot
from entrypoint.roce import Rail, nccl_environment, not_up, rails
from entrypoint.stages import meet
from entrypoint.topology import Layout, layout, nccl_block, neighbour_devices, ring_graph
from group.ask import boottime
from preflight.checks import Wanted, asked, peers
from preflight.checks.scene import names_of
from preflight.checks.wanted import hca, subnets
from preflight.facts import BoxFacts, gather
from preflight.facts.network import interfaces
from preflight.facts.rdma import devices

JUST_BOOTED_S = 600.0
LOOK_S = 0.5


def box_rails(boot: Boot, settings: Settings) -> tuple[Rail, ...]:
    """This box's rails now; none on a box without RDMA devices, as in the lab."""
    found = devices(boot.root)
    if not found or boot.facts is None:
        return ()
    return rails(found, boot.facts.interfaces, subnets(settings), names_of(hca(settings)))


async def settled(
    root: Path, disks: Sequence[str], settings: Settings, step: Callable[[str], None], uptime_s: float
) -> BoxFacts:
    """This box's facts once its rails are up, or once FABRIC_WAIT_S and ROCE_SETTLE_S are over: then what is missing is
    a row of preflight. At once on a box without RDMA devices.
    """
    facts = gather(root, disks)
    wait_s = settings.number("FABRIC_WAIT_S")
    if not settings.is_set("FABRIC_WAIT_S") and uptime_s > JUST_BOOTED_S:
        wait_s = 0.0
    began = boottime()
    while boottime() - began < wait_s and (late := not_up(devices(root), facts.interfaces)):
        step(f"waiting for link and address of {', '.join(late)} (at most {wait_s:g} s, FABRIC_WAIT_S)")
        await asyncio.sleep(LOOK_S)
        facts = gather(root, disks)
    began, longest = boottime(), settings.number("ROCE_SETTLE_S")
    while boottime() - began < longest and (late := _without_gid(root, facts, settings)):
        step(f"waiting for the GID of {', '.join(late)} (at most {longest:g} s, ROCE_SETTLE_S)")
        await asyncio.sleep(LOOK_S)
    return facts


def _without_gid(root: Path, facts: BoxFacts, settings: Settings) -> tuple[str, ...]:
    seen = rails(devices(root), facts.interfaces, subnets(settings), names_of(hca(settings)))
    return tuple(f"{rail.device} ({rail.address})" for rail in seen if rail.gid_index is None)


def look_again(boot: Boot) -> None:
    """Before a new incarnation is shown: cables are moved and MTUs set while a group is down."""
    if boot.facts is not None:
        boot.facts = replace(boot.facts, interfaces=interfaces(boot.root))


def all_rails(boot: Boot, settings: Settings) -> dict[str, tuple[Rail, ...]]:
    """lan -> rails of every box, as far as published interfaces tell."""
    assert boot.facts is not None
    wanted = subnets(settings)
    mine = {boot.lan: boot.facts.interfaces}
    theirs = {lan: view.about.interfaces for lan, view in meet.fit(boot).items()}
    return {lan: peers.rails_of(interfaces, wanted) for lan, interfaces in {**mine, **theirs}.items()}


def cabling(boot: Boot, settings: Settings) -> tuple[Layout | None, tuple[Row, ...], tuple[Refusal, ...]]:
    """(layout, rows, refusals). Wrong cabling refuses where a loop was asked for; found by itself it is a row, and the
    engine's own traffic goes over the LAN.
    """
    seen = all_rails(boot, settings)
    rows = peers.compare(seen)
    wanted = settings.text("TOPOLOGY") if boot.topology == "switch" else boot.topology
    if not any(seen.values()) and wanted in ("auto", "switch"):
        return None, (), ()
    found = layout(seen, wanted, boot.elected.head if boot.elected else None)
    if isinstance(found, Layout):
        return found, rows, ()
    return None, (*peers.cabling(found), *rows), found if wanted != "auto" else ()


def fabric_nccl(boot: Boot, settings: Settings, ifname: str) -> Mapping[str, str]:
    """NCCL's environment as the fabric asks for it; empty without rails. What somebody set by hand lies above it."""
    mine = box_rails(boot, settings)
    if not mine:
        return {}
    chosen = dict(nccl_environment(mine, ifname))
    plan = boot.group_plan
    if plan is not None and plan.topology != "switch":
        seen, found = {**all_rails(boot, settings), boot.lan: mine}, boot.layout
        if found is not None:
            chosen.pop("NCCL_IB_GID_INDEX", None)  # each cable is a subnet: the index may differ per device
            chosen |= nccl_block(found, seen, boot.lan, _graph_file(boot, settings, found, seen))
    return chosen


def _graph_file(boot: Boot, settings: Settings, found: Layout, seen: Mapping[str, Sequence[Rail]]) -> str:
    """Write this box's ring down for NCCL; the path, or "" without a ring or a libibverbs that lists the devices."""
    text = ring_graph(*neighbour_devices(found, seen, boot.lan), boot.verbs_order) if found.topology == "ring" else ""
    if not text:
        return ""
    path = Path(settings.text("STATE_DIR")) / "nccl-ring.xml"
    try:
        path.write_text(text)
    except OSError as error:
        log("fabric", f"{path}: {error.strerror}: NCCL finds its own way around the ring")
        return ""
    return str(path)


def wanted(boot: Boot, settings: Settings) -> Wanted:
    """What preflight compares this box with, now that the cabling is known."""
    loop = boot.layout is not None and boot.layout.neighbours is not None
    return replace(asked(settings), boxes=boot.tp, loop=loop, lan_netdev=boot.ifname)


def in_rank_order(boot: Boot) -> None:
    """On a loop the ranks follow the cables; the head stays rank 0."""
    assert boot.elected is not None
    if boot.layout is not None and boot.layout.neighbours is not None:
        boot.elected = replace(boot.elected, order=boot.layout.order)
