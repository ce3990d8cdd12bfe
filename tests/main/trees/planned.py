"""Plans as the kit makes them on GB10 boxes: knobs at their defaults but for what a case sets."""

from __future__ import annotations

from core.plan import BoxPlan, Command, GroupPlan, Value
from core.registry import registry
from core.settings import resolve
from core.units import GIB
from entrypoint.serve import box_nccl, box_paths, engine_command
from entrypoint.sizing import BoxMemory, size

TOTAL = int(121.6 * GIB)


def command(rank: int, tp: int, **knobs: str) -> Command:
    """The command of one box of a GB10 group."""
    settings = resolve(registry(), {"TP": str(tp), **knobs})
    boxes = [BoxMemory(f"box{number}", TOTAL, TOTAL - 3 * GIB) for number in range(tp)]
    values = {
        name: Value(setting.value, setting.source)
        for name, setting in settings.table.items()
        if setting.knob.scope == "group" and not setting.knob.secret and setting.value is not None
    }
    sizing = size(boxes, settings)
    group = GroupPlan(tp, "switch", "gb10", {**values, **sizing.values})
    box = BoxPlan(
        rank=rank,
        world_size=tp,
        lan_address=f"10.0.0.{9 + rank}",
        engine_address=f"198.18.0.{1 + rank}",
        socket_ifname="enp1s0f0np0",
        master_address="198.18.0.1",
        master_port=20014,
        api_port=41001,
        rails=("rocep1s0f0", "roceP2p1s0f0"),
        nccl=box_nccl(settings),
        paths=box_paths(settings),
    )
    return engine_command(group, box, {"PATH": "/usr/bin", "VLLM_API_KEY": "s3cret"})
