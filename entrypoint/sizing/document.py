"""A plan as one plain document: what `./glm53 plan` prints, writes as JSON and compares.

Pure but for the code of the overlays, which is read for the tag of the weights.

docs/plan.schema.json describes it; `VERSION` changes when a field changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from core.knob import Knob
from core.mask import MASK
from core.plan import BoxPlan, GroupPlan
from core.registry import registry
from core.row import Row
from core.settings import Settings
from entrypoint import treatment
from entrypoint.knobs import profile_of, ranks, topology_of
from entrypoint.plan import group_plan
from entrypoint.serve import box_nccl, box_paths, engine_command, shown
from entrypoint.serve.environment import KIT_ROOT
from entrypoint.sizing.sizing import BoxMemory, size
from group.ports import parse_range

VERSION = 1
# Stand-ins for what only a running group knows; recognisable, so that nobody copies them into a command.
HEAD, THIS, IFNAME, DEVICES = "HEAD_ENGINE_ADDRESS", "THIS_ENGINE_ADDRESS", "RAIL_IFNAME", ("RDMA_DEVICES",)
LOOPBACK_PORT = 0
IN_THE_IMAGE = "/opt/glm53"


def document(
    settings: Settings,
    boxes: Sequence[BoxMemory],
    overlays: Sequence[Mapping[str, Any]],
    rows: Sequence[Row] = (),
) -> dict[str, Any]:
    """The whole plan of these settings and boxes; `rows` are what others say about the checkpoint.

    `overlays` are those that would be mounted: name, summary, mounts, environment, cost. Raises Refusal(s).
    """
    names = tuple(str(overlay["name"]) for overlay in overlays)
    sizing = size(boxes, settings, names, profile_of(settings))
    of_overlays = {name: str(text) for overlay in overlays for name, text in overlay["environment"].items()}
    plan = group_plan(sizing.tp, topology_of(settings), settings, of_overlays, sizing.values)
    pool = asdict(sizing.pool) if sizing.pool else None
    return {
        "version": VERSION,
        "tp": sizing.tp,
        "topology": plan.topology,
        "profile": plan.profile,
        "hash": plan.hash(),
        "weights": plan[treatment.TAG],
        "block": sizing.block,
        "pool": {**pool, "layout": settings.text("KV_LAYOUT")} if pool else None,
        "budgets": [budget.as_dict() for budget in sizing.budgets],
        "rows": [row.as_dict() for row in (*rows, *sizing.rows)],
        "overlays": [dict(overlay) for overlay in overlays],
        "knobs": _knobs(settings, plan),
        "commands": {role: _command(settings, plan, role, of_overlays) for role in ("head", "worker")},
    }


def _knobs(settings: Settings, plan: GroupPlan) -> list[dict[str, Any]]:
    listed = []
    for name, knob in registry().items():
        setting = settings.table[name]
        planned = plan.values.get(name)
        value: Any = planned.value if planned else setting.value
        if knob.secret and setting.text:
            value = MASK
        listed.append(
            {
                "name": name,
                "value": list(value) if isinstance(value, tuple) else value,
                "unit": knob.unit,
                "source": planned.source if planned else setting.source,
                "scope": knob.scope,
                "why": planned.why if planned and planned.why else knob.why,
                "measured": knob.measured,
            }
        )
    return listed


def _command(settings: Settings, plan: GroupPlan, role: str, of_overlays: Mapping[str, str]) -> dict[str, Any]:
    rank = 0 if role == "head" else 1
    box = BoxPlan(
        rank=rank,
        world_size=ranks(settings.text("TP")),
        lan_address="THIS_LAN_ADDRESS",
        engine_address=HEAD if rank == 0 else THIS,
        socket_ifname=IFNAME,
        master_address=HEAD,
        master_port=parse_range(settings.text("PORT_RANGE"))[0],
        api_port=LOOPBACK_PORT,
        rails=DEVICES,
        nccl=box_nccl(settings),
        paths=box_paths(settings),
    )
    secret = {"VLLM_API_KEY": "set"} if settings.text("API_KEY") or settings.text("API_KEY_FILE") else {}
    # As the container's environment holds them: knobs that somebody set, and what the overlays' compose files set.
    given = {name: settings.text(name) for name, knob in registry().items() if settings.is_set(name) and _passed(knob)}
    command = engine_command(plan, box, {**given, **of_overlays, **secret})
    # The kit's own files lie elsewhere in the image than in a clone.
    argv = [word.replace(str(KIT_ROOT), IN_THE_IMAGE) if plan.profile == "gb10" else word for word in command.argv]
    return {"argv": argv, "environment": shown(command)}


def _passed(knob: Knob) -> bool:
    return knob.scope != "launcher" and not knob.secret


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name, in the first, in the second) of everything that differs between two documents, as text."""
    flat_mine, flat_theirs = _flat(mine), _flat(theirs)
    names = [*flat_mine, *(name for name in flat_theirs if name not in flat_mine)]
    return [
        (name, flat_mine.get(name, "-"), flat_theirs.get(name, "-"))
        for name in names
        if flat_mine.get(name, "-") != flat_theirs.get(name, "-")
    ]


def _flat(plan: Mapping[str, Any]) -> dict[str, str]:
    flat = {name: str(plan.get(name)) for name in ("tp", "topology", "profile", "hash", "weights", "block")}
    flat |= {f"knob {knob['name']}": _text(knob["value"]) for knob in plan.get("knobs", ())}
    if plan.get("pool"):
        flat |= {f"pool {name}": _text(value) for name, value in plan["pool"].items()}
    for budget in plan.get("budgets", ()):
        flat |= {f"{budget['role']} {item['name']}": _text(item["size"]) for item in budget["items"]}
        flat[f"{budget['role']} left over"] = _text(budget["left"])
    flat["overlays"] = ", ".join(overlay["name"] for overlay in plan.get("overlays", ())) or "none"
    return flat


def _text(value: Any) -> str:
    return "unset" if value is None else str(value)
