"""Stage 9's measurement: this box's worker with the devices and environment the engine will use, all boxes at once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from core.log import log
from core.row import Row
from core.settings import Settings
from core.units import show_seconds
from entrypoint.boot import Boot
from entrypoint.roce import Rail
from entrypoint.serve import engine_command
from entrypoint.stages import plans
from entrypoint.stages.rails import box_rails
from experimental.overlays import CONTAINER
from fabric import verdict
from fabric.round import Job, Outcome, end, run_round, start
from group.ask import boottime
from group.view import Record
from image.identity import compared
from preflight.checks.fabric import LOSS_CURE, LOSSES
from preflight.checks.scene import link_to
from preflight.facts.gpu import gpus as seen_gpus
from preflight.facts.rdma import devices
from preflight.facts.survey import rates

OVERLAY_FILES = CONTAINER  # where ./glm53 mounts them
# A box's own addresses and folders.
DIFFER_BY_NATURE = frozenset(
    ("LAN_ADDRESS", "ROLE", "PEERS", "STATUS_BIND", "STATE_DIR", "LOG_DIR", "CACHE_ROOT", "MODEL_DIR", "DFLASH_MODEL")
)
ROOTS = "PCIe roots"
SLACK_S = 20.0  # from the last box's arrival to the end of a healthy round


async def measure(boot: Boot, settings: Settings, record: Record) -> tuple[Row, ...]:
    """The rows of the check; a check that cannot run is a row too. Never raises for what the fabric does."""
    seat = record.seat(boot.lan)
    assert seat is not None
    assert boot.group_plan is not None
    mine = box_rails(boot, settings)
    gpu = settings.text("ENGINE_PROFILE") == "gb10"
    per_rail = settings.number("FABRIC_CHECK_GBPS_PER_DEVICE")
    expected = per_rail * max(1, len(mine)) if mine or settings.is_set("FABRIC_CHECK_GBPS_PER_DEVICE") else 0.0
    meet_s = settings.number("FABRIC_CHECK_TIMEOUT_S")
    job = Job(
        rank=seat.rank,
        world=len(record.seats),
        host=record.head.engine_address,
        port=record.check_port,
        backend="nccl" if gpu else "gloo",
        bytes=settings.integer("FABRIC_CHECK_BYTES"),
        facts=facts(boot, settings, mine),
        expected_gbps=expected,
        meet_s=meet_s,
        probe_s=2.0 if gpu else 0.05,
    )
    box = plans.box_plan(boot, settings, record, 1)
    environment = engine_command(boot.group_plan, box, os.environ).environment
    names = [_name(boot, one.lan) for one in record.seats]
    began = boottime()
    before = {device.name: dict(device.counters) for device in devices(boot.root)}
    until = began + meet_s + SLACK_S

    def ended() -> list[int]:
        """Ranks whose kits say that their check of this record is over."""
        views = boot.members.live() if boot.members is not None else {}
        through = [lan for lan, view in views.items() if view.checked and view.record and view.record.id == record.id]
        return [one.rank for one in record.seats if one.lan in through]

    async def one(extra: Mapping[str, str], task: Job, warm: Process | None = None) -> Outcome:
        left = max(1.0, until - boottime())
        with tempfile.TemporaryDirectory(prefix="glm53-fabric-") as folder:
            log_file = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/nccl.log"} if gpu else {}
            every = {**environment, **log_file, **extra, "PYTHONPATH": ""}
            task = replace(task, meet_s=min(task.meet_s, left))
            return await run_round(settings.text("ENGINE_PYTHON"), task, every, left, _step(boot), warm, ended)

    outcome = await one({}, job, boot.fabric_worker)
    variants: dict[str, float] = {}
    expected = outcome.expected_gbps if outcome.complete else expected
    if gpu and outcome.complete and verdict.low(outcome.gbps, expected):
        for name, extra in _variants(boot, mine, _fewest(outcome.facts, ROOTS)).items():
            boot.board.step(f"bandwidth is low: measuring {name} apart")
            variants[name] = (await one(extra, replace(job, expected_gbps=0.0, probe_s=0.0, meet_s=30.0))).gbps
    took = boottime() - began
    log("fabric", "measured", took=show_seconds(took), gbps=f"{outcome.gbps:.1f}", phase=outcome.phase)
    boot.board.step(
        f"{outcome.gbps:.1f} Gb/s bus bandwidth" if outcome.complete else outcome.error or "not all arrived"
    )
    return (*verdict.rows(outcome, names, expected, len(mine), variants), *_lost(boot, before, took))


async def warm_up(boot: Boot, settings: Settings) -> None:
    """Start the worker now: importing torch takes seconds that discovery takes anyway. A check of `measure` uses it."""
    ready = boot.fabric_worker is not None and boot.fabric_worker.returncode is None
    if ready or settings.text("FABRIC_CHECK") == "0":
        return
    try:
        boot.fabric_worker = await start(settings.text("ENGINE_PYTHON"), {**os.environ, "PYTHONPATH": ""})
    except OSError:
        boot.fabric_worker = None  # the check itself says so


async def cool_down(boot: Boot) -> None:
    """No worker is left."""
    if boot.fabric_worker is not None:
        await end(boot.fabric_worker)
        boot.fabric_worker = None


def _step(boot: Boot) -> Callable[[str], None]:
    texts = {"imported": "waiting for the other boxes", "met": "joining", "grouped": "all-reduce", "reduced": "latency"}
    return lambda phase: boot.board.step(texts.get(phase, phase))


def _name(boot: Boot, lan: str) -> str:
    view = boot.members.live().get(lan) if boot.members is not None else None
    name = boot.hostname if lan == boot.lan else view.about.hostname if view is not None else ""
    return f"{name} ({lan})" if name else lan


def _variants(boot: Boot, mine: Sequence[Rail], roots: int) -> dict[str, dict[str, str]]:
    """What is measured apart: Ring and Tree, then one PCIe root after the other where every box has `roots` of them.

    The list is the same on every box, since all know the same facts: a box with another list would be waited for.
    """
    assert boot.group_plan is not None
    found: dict[str, dict[str, str]] = {}
    if boot.group_plan.topology == "switch":
        found = {"Ring": {"NCCL_ALGO": "Ring"}, "Tree": {"NCCL_ALGO": "Tree"}}
    for number, root in enumerate(sorted({rail.root for rail in mine})[:roots] if roots > 1 else ()):
        names = ",".join(rail.device for rail in mine if rail.root == root)
        found[f"root {number}"] = {"NCCL_IB_HCA": f"={names}"}
    return found


def _fewest(facts: Mapping[int, Mapping[str, str]], name: str) -> int:
    """The least of a count that every box tells; 0 where one does not."""
    return min((int(held.get(name, "0")) for held in facts.values()), default=0)


def _lost(boot: Boot, before: Mapping[str, Mapping[str, int]], seconds: float) -> tuple[Row, ...]:
    """Loss counters that grew while the rails were loaded."""
    name = "retransmits"
    return tuple(
        Row(name, "WARN", f"{device}: {counter} grew by {rate:.1f}/s under load", "no growth", LOSS_CURE, link_to(name))
        for device, counter, rate in rates(before, devices(boot.root), seconds)
        if counter in LOSSES
    )


def facts(boot: Boot, settings: Settings, mine: tuple[Rail, ...]) -> dict[str, str]:
    """What must be equal on all boxes and is not part of the group plan: one short text a name."""
    assert boot.facts is not None
    gpus = seen_gpus() or ()
    found = {
        "kit": boot.version,
        **compared(boot.image),
        "kernel": boot.facts.kernel,
        "rails": str(len(mine)),
        ROOTS: str(len({rail.root for rail in mine})),
        "rail rate": "/".join(sorted({f"{rail.rate:g}" for rail in mine})),
        "MTU": "/".join(sorted({str(rail.mtu) for rail in mine})),
        "NIC firmware": "/".join(sorted({device.firmware for device in devices(boot.root) if device.active})),
        "driver": "/".join(sorted({one.driver for one in gpus})),
        "GPU clock limits": ", ".join(sorted({name for one in gpus for name in one.limits})) or "none" if gpus else "",
        "GPU top clock": "/".join(sorted({f"{one.max_clock} MHz" for one in gpus})),
        "overlays": settings.text("GLM53_OVERLAYS"),
        "overlay files": _tree(Path(OVERLAY_FILES)),
        "checkpoint": _files(Path(settings.text("MODEL_DIR"))),
        "drafter": _files(Path(settings.text("DFLASH_MODEL"))),
        "chat template": _file(Path(settings.text("CHAT_TEMPLATE"))) if settings.text("CHAT_TEMPLATE") else "",
    }
    found |= {f"{verdict.KNOB}{name}": text for name, text in own_knobs(settings).items()}
    return {name: text for name, text in found.items() if text}


def own_knobs(settings: Settings) -> dict[str, str]:
    """What somebody set for this box alone, but for what has to differ. Knobs of the group were compared in `join`."""
    return {
        name: setting.shown
        for name, setting in sorted(settings.table.items())
        if setting.knob.scope == "box" and name not in DIFFER_BY_NATURE and settings.is_set(name) and setting.text
    }


def _files(folder: Path) -> str:
    """A digest of what says which weights these are: config and index."""
    return _digest([folder / "config.json", folder / "model.safetensors.index.json"])


def _file(path: Path) -> str:
    return _digest([path])


def _tree(folder: Path) -> str:
    try:
        return _digest(sorted(path for path in folder.rglob("*.py") if path.is_file()))
    except OSError:
        return ""


def _digest(paths: list[Path]) -> str:
    digest, seen = hashlib.sha256(), False
    for path in paths:
        try:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
            seen = True
        except OSError:
            continue
    return digest.hexdigest()[:12] if seen else ""
