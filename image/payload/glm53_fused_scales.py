"""One global scale for a fused gate/up pair without mis-scaling the up projection.

Installed into the vllm package by the patch `w13-global-scales`. An NVFP4 weight is fp4 x e4m3 block scale x global
scale. The fused kernel takes one global scale per expert; a checkpoint may hold two. Both halves get the larger one
and the block scales of the other half are multiplied by (its own / larger), which rounds them in e4m3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from vllm.logger import init_logger

logger = init_logger(__name__)
E4M3 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Reconciled:
    """How many of the experts differed, by what factor at most, and the worst relative rounding of a block scale."""

    experts: int
    differing: int
    factor: float
    rounding: float


def reconcile(layer: Any, gated: bool) -> Reconciled | None:
    """Give both halves of every expert's w13 the larger global scale, in place. None when there is nothing to do.

    `layer.w13_weight_scale` is [experts, 2N, K/16] e4m3, gate rows first; `layer.w13_weight_scale_2` is [experts, 2]
    fp32. Equal globals are left bit for bit. Off with W13_RECONCILE=0.
    """
    if not gated or os.environ.get("W13_RECONCILE", "") == "0":
        return None
    scales, globals_ = layer.w13_weight_scale.data, layer.w13_weight_scale_2.data
    if scales.dtype != E4M3 or globals_.ndim != 2 or globals_.shape[1] != 2:
        return None
    larger = globals_.amax(dim=1)
    differing = (globals_[:, 0] != globals_[:, 1]).nonzero().flatten().tolist()
    half = scales.shape[1] // 2
    worst, factor = 0.0, 1.0
    for expert in differing:
        smaller = int(globals_[expert].argmin())
        ratio = globals_[expert, smaller] / larger[expert]
        rows = slice(smaller * half, (smaller + 1) * half)
        exact = scales[expert, rows].to(torch.float32) * ratio.to(torch.float32)
        rounded = exact.to(E4M3)
        error = (rounded.to(torch.float32) - exact).abs() / exact.abs().clamp_min(torch.finfo(torch.float32).tiny)
        worst = max(worst, float(error.max()))
        factor = max(factor, float(1 / ratio))
        scales[expert, rows] = rounded
    globals_.copy_(larger[:, None].expand_as(globals_))
    report = Reconciled(globals_.shape[0], len(differing), factor, worst)
    if differing:
        logger.info(
            "glm53: %s: %d of %d experts had two global scales (up to %.2fx apart); worst rounding of a block scale "
            "%.2f%%",
            getattr(layer, "layer_name", "experts"),
            report.differing,
            report.experts,
            report.factor,
            100 * report.rounding,
        )
    return report
