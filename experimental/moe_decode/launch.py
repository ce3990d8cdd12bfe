"""Shapes, workspace and launcher of moe_decode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from experimental.launch import INTERPRETED, Variant, run
from experimental.moe_decode.kernel import moe_first, moe_second
from experimental.nvfp4.cut import tiles_for

MAX_TOKENS = 64


@dataclass(frozen=True)
class Experts:
    """The tensors as the backend keeps them, for one layer and rank.

    w13 uint8 [E, 2 I, H/2], rows up then gate; s13 uint8 e4m3, 128x4 swizzled; up, gate fp32 [E]: the weights' globals;
    w2 uint8 [E, H, I/2], s2 swizzled, down fp32 [E].
    """

    w13: torch.Tensor
    s13: torch.Tensor
    up: torch.Tensor
    gate: torch.Tensor
    w2: torch.Tensor
    s2: torch.Tensor
    down: torch.Tensor

    @property
    def hidden(self) -> int:
        """H, the model's width."""
        return int(self.w2.shape[1])

    @property
    def intermediate(self) -> int:
        """I, this rank's width of an expert."""
        return int(self.w2.shape[2]) * 2


@dataclass(frozen=True)
class Shape:
    """Cuts of the two kernels: warps that share K and groups of 8 rows; `expert_warps` walk the list side by side."""

    first_warps: int = 8
    first_rows: int = 4
    second_warps: int = 4
    expert_warps: int = 1
    second_rows: int = 2
    overlap: bool = True


@dataclass(frozen=True)
class Workspace:
    """What the first kernel hands to the second; one per token count, so that graphs keep their pointers."""

    hidden: torch.Tensor
    experts: torch.Tensor
    where: torch.Tensor
    count: torch.Tensor


def workspace(tokens: int, topk: int, intermediate: int, device: torch.device) -> Workspace:
    """Scratch memory for a token count: tokens * topk rows of fp16 and the list of experts."""
    pairs, columns = tokens * topk, 8 * tiles_for(tokens)
    return Workspace(
        torch.empty(pairs, intermediate, dtype=torch.float16, device=device),
        torch.empty(pairs, dtype=torch.int32, device=device),
        torch.empty(pairs, columns, dtype=torch.int32, device=device),
        torch.empty(1, dtype=torch.int32, device=device),
    )


def shape_for(tokens: int) -> Shape:
    """The cuts for a token count: best on an H200 by bench/kernels_sweep.py, with few kernels to compile."""
    if tokens <= 2:
        return Shape(first_warps=8, first_rows=4, second_warps=4, expert_warps=2, second_rows=2)
    rows = 4 if tokens <= 32 else 2  # four would spill
    return Shape(first_warps=4, first_rows=rows, second_warps=4, expert_warps=2, second_rows=rows)


@cache
def variants(hidden: int, topk: int, tokens: int, shape: Shape, out: str = "bf16") -> tuple[Variant, Variant]:
    """The two kernels for a model's width and a token count's tiles."""
    tiles = tiles_for(tokens)
    fast = not INTERPRETED
    pointer = "{}/16".format
    first = Variant(
        moe_first,
        (
            ("x_ptr", pointer("*bf16")),
            ("ids_ptr", pointer("*i32")),
            ("weight_ptr", pointer("*fp32")),
            ("w13_ptr", pointer("*i16")),
            ("s13_ptr", pointer("*i16")),
            ("up_ptr", pointer("*fp32")),
            ("gate_ptr", pointer("*fp32")),
            ("hidden_ptr", pointer("*fp16")),
            ("experts_ptr", pointer("*i32")),
            ("where_ptr", pointer("*i32")),
            ("count_ptr", pointer("*i32")),
            ("M", "i32"),
            ("limit", "fp32"),
            ("scaling", "fp32"),
            ("I", "i32/16"),
        ),
        (
            ("K", hidden),
            ("TOPK", topk),
            ("PAIRS", 1 << (8 * tiles * topk - 1).bit_length()),
            ("WARPS", shape.first_warps),
            ("R", shape.first_rows),
            ("TILES", tiles),
            ("OVERLAP", shape.overlap),
            ("FAST", fast),
        ),
        warps=shape.first_warps,
        overlap=shape.overlap,
    )
    second = Variant(
        moe_second,
        (
            ("hidden_ptr", pointer("*fp16")),
            ("experts_ptr", pointer("*i32")),
            ("where_ptr", pointer("*i32")),
            ("count_ptr", pointer("*i32")),
            ("w2_ptr", pointer("*i16")),
            ("s2_ptr", pointer("*i16")),
            ("down_ptr", pointer("*fp32")),
            ("out_ptr", pointer(f"*{out}")),
            ("M", "i32"),
            ("H", "i32/16"),
            ("I", "i32/16"),
            ("WORDS", "i32/16"),
        ),
        (
            ("K_WARPS", shape.second_warps),
            ("E_WARPS", shape.expert_warps),
            ("R", shape.second_rows),
            ("TILES", tiles),
            ("OVERLAP", shape.overlap),
            ("FAST", fast),
        ),
        warps=shape.second_warps * shape.expert_warps,
        overlap=shape.overlap,
    )
    return first, second


def moe(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    layer: Experts,
    out: torch.Tensor,
    space: Workspace,
    *,
    limit: float,
    scaling: float,
    shape: Shape,
) -> None:
    """out [M, H] (bf16 or fp32) = scaling * sum over choices of weight * expert(x); choices with id -1 are skipped.

    x bf16 [M, H]; ids int32 and weights fp32 [M, topk], an id at most once a token. A shared expert is one more id.
    """
    tokens, topk = ids.shape
    if layer.intermediate % 128 or layer.hidden % 128:
        raise ValueError(f"sizes {layer.hidden}, {layer.intermediate} are no multiples of 128")
    if tokens == 0:
        return
    kind = "bf16" if out.dtype == torch.bfloat16 else "fp32"
    first, second = variants(layer.hidden, topk, tokens, shape, kind)
    common = {
        "hidden_ptr": space.hidden,
        "experts_ptr": space.experts,
        "where_ptr": space.where,
        "count_ptr": space.count,
        "M": tokens,
        "I": layer.intermediate,
    }
    run(
        first,
        (1 + layer.intermediate // (4 * shape.first_rows), tokens * topk),
        {
            **common,
            "x_ptr": x,
            "ids_ptr": ids,
            "weight_ptr": weights,
            "w13_ptr": layer.w13.view(torch.int16),
            "s13_ptr": layer.s13.view(torch.int16),
            "up_ptr": layer.up,
            "gate_ptr": layer.gate,
            "limit": limit,
            "scaling": scaling,
        },
    )
    second_arguments = {
        **common,
        "w2_ptr": layer.w2.view(torch.int16),
        "s2_ptr": layer.s2.view(torch.int16),
        "down_ptr": layer.down,
        "out_ptr": out,
        "H": layer.hidden,
        "WORDS": layer.intermediate // 4,
    }
    run(second, (layer.hidden // (8 * shape.second_rows),), second_arguments)
