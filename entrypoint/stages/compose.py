"""From settings and facts to the plan: group plan, formation, this box's part.

Pure but for the loopback port and the code of the overlays, which is read for the plan's tag of the weights.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from core.plan import BoxPlan, GroupPlan, Profile, Topology, Value
from core.settings import Settings
from entrypoint import treatment
from entrypoint.boot import Boot
from entrypoint.serve import box_nccl, box_paths
from entrypoint.serve.environment import overlay_settings
from entrypoint.sizing.sizing import BoxMemory, Sizing, size
from entrypoint.stages.rails import box_rails, fabric_nccl
from group.machine import Formation
from group.view import Record

# Group-scope knobs that the kit itself reads: they shape no argument of vLLM and no memory.
PROFILES: Mapping[str, Profile] = {"gb10": "gb10", "lab-cpu": "lab-cpu"}
TOPOLOGIES: Mapping[str, Topology] = {"switch": "switch", "ring": "ring", "triangle": "triangle"}


def trial_plan(boot: Boot, settings: Settings) -> GroupPlan:
    """The group plan as far as settings alone make it."""
    topology = boot.layout.topology if boot.layout is not None else TOPOLOGIES[boot.topology]
    values = {**_values(settings), **overlay_settings(boot.environ), **treatment.planned(settings, boot.environ)}
    return GroupPlan(boot.tp, topology, PROFILES[settings.text("ENGINE_PROFILE")], values)


def _values(settings: Settings) -> dict[str, Value]:
    return {
        name: Value(setting.value, setting.source)
        for name, setting in settings.table.items()
        if setting.knob.scope == "group" and not setting.knob.secret and setting.value is not None
    }


def overlays(settings: Settings) -> tuple[str, ...]:
    """The overlays that are mounted, in order."""
    return tuple(part for part in settings.text("GLM53_OVERLAYS").split(",") if part)


def sized_plan(boot: Boot, settings: Settings, boxes: Sequence[BoxMemory]) -> tuple[GroupPlan, Sizing]:
    """The whole group plan for these boxes. Raises Refusal or Refusals."""
    trial = trial_plan(boot, settings)
    sizing = size(boxes, settings, overlays(settings), trial.profile)
    plan = GroupPlan(trial.tp, trial.topology, trial.profile, {**trial.values, **sizing.values})
    return plan, sizing


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


def free_loopback_port() -> int:
    """A port that is free on 127.0.0.1 now: vLLM's API listens there, behind the door."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
