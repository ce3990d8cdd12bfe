"""From settings to what the checks compare a box with: the same for the boot and for `./glm53 doctor`."""

from __future__ import annotations

import model
from core.settings import Settings
from entrypoint.knobs import TP_SPELLINGS
from preflight.checks.answers import INPUT_SCALE
from preflight.checks.scene import Wanted


def asked(settings: Settings) -> Wanted:
    """What the settings alone say, with paths as the container sees them."""
    boxes, loop = TP_SPELLINGS[settings.text("TP")]
    return Wanted(
        boxes=boxes,
        kv_bytes=int(settings["KV_CACHE_MEMORY"] or 0),
        weight_bytes=model.disk(model.load()),
        loop=bool(loop),
        subnets=subnets(settings),
        devices=hca(settings),
        gid_index=settings.text("NCCL_IB_GID_INDEX"),
        cpu=settings.text("ENGINE_PROFILE") == "lab-cpu",
        model=settings.text("MODEL_DIR"),
        drafter=settings.text("DFLASH_MODEL"),
        cache=settings.text("CACHE_ROOT"),
        logs=settings.text("LOG_DIR"),
        template=settings.text("CHAT_TEMPLATE"),
        input_scale=settings.text(INPUT_SCALE),
    )


def subnets(settings: Settings) -> tuple[str, ...]:
    """The networks that somebody declared to be rails, in their order; empty when nobody did."""
    text = settings.text("CLUSTER_SUBNET") or settings.text("FABRIC_SUBNETS")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def hca(settings: Settings) -> tuple[str, ...]:
    """NCCL_IB_HCA's parts as somebody set them."""
    return tuple(part.strip() for part in settings.text("NCCL_IB_HCA").split(",") if part.strip())
