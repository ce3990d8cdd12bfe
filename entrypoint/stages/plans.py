"""Plans from settings and facts: the group plan, what the machine needs of it, this box's part.

Pure but for the code of the overlays (entrypoint/plan.py) and GIDs, which are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.plan import BoxPlan, GroupPlan, Topology
from core.settings import Settings
from entrypoint.boot import Boot
from entrypoint.knobs import profile_of
from entrypoint.plan import group_plan
from entrypoint.serve import box_nccl, box_paths
from entrypoint.sizing.sizing import BoxMemory, Sizing, size
from entrypoint.stages.rails import box_rails, fabric_nccl
from group.machine import Formation
from group.view import Record


def trial_plan(boot: Boot, settings: Settings) -> GroupPlan:
    """The group plan as far as settings alone make it."""
    return group_plan(boot.tp, _topology(boot), settings, boot.environ, {})


def _topology(boot: Boot) -> Topology:
    return boot.layout.topology if boot.layout is not None else boot.topology


def overlays(settings: Settings) -> tuple[str, ...]:
    """The overlays that are mounted, in order."""
    return tuple(part for part in settings.text("GLM53_OVERLAYS").split(",") if part)


def sized_plan(boot: Boot, settings: Settings, boxes: Sequence[BoxMemory]) -> tuple[GroupPlan, Sizing]:
    """The whole group plan for these boxes. Raises Refusal or Refusals."""
    sizing = size(boxes, settings, overlays(settings), profile_of(settings))
    return group_plan(boot.tp, _topology(boot), settings, boot.environ, sizing.values), sizing


def formation(order: tuple[str, ...], addresses: Mapping[str, tuple[str, str]], plan: GroupPlan) -> Formation:
    """What the machine needs of election and plan."""
    return Formation(order[0], order, {lan: addresses[lan][0] for lan in order}, plan.hash())


def box_plan(boot: Boot, settings: Settings, record: Record, api_port: int) -> BoxPlan:
    """This box's part of a committed generation."""
    seat = record.seat(boot.lan)
    assert seat is not None
    ifname = boot.netdevs.get(boot.lan, ("", boot.ifname))[1] or boot.ifname
    return BoxPlan(
        rank=seat.rank,
        world_size=len(record.seats),
        lan_address=boot.lan,
        engine_address=seat.engine_address,
        socket_ifname=ifname,
        master_address=record.head.engine_address,
        master_port=record.master_port,
        api_port=api_port,
        rails=tuple(rail.device for rail in box_rails(boot, settings)),
        nccl={**fabric_nccl(boot, settings, ifname), **box_nccl(settings)},
        paths={**box_paths(settings), **boot.cache_paths},
    )
