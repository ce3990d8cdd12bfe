"""Shapes, conversion and launchers of dense_fp8."""

from __future__ import annotations

from functools import cache

import torch

from experimental.dense_fp8.kernel import dense_fp8, quantise_tokens
from experimental.launch import INTERPRETED, Variant, prepare, run
from experimental.nvfp4.cut import TOKEN_STEPS, Shape, tiles_for

MAX_TOKENS = TOKEN_STEPS[-1]
E4M3_MAX = 448.0


def shape_for(n: int, tokens: int) -> Shape:
    """The cut for a layer and a token count: best on an H200 by bench/kernels_sweep.py, with few kernels to compile."""
    if tokens > 32:
        return Shape(4, 1, 2, 1)  # four groups of rows would spill
    if n >= 16384 or tokens > 16:
        return Shape(4, 1, 4, 1)
    if n >= 6000:
        return Shape(8, 1, 4, 1) if tokens <= 8 else Shape(4, 1, 4, 2)
    return Shape(16, 1, 4, 1) if tokens <= 8 else Shape(8, 1, 4, 1)


# The most rows any of these takes in a program: what w's rows are padded to.
PAD = 32


def quantise_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 [N, K] and fp32 [N]: each output channel's amax is 448; a row of zeros has scale 1."""
    wide = weight.float()
    amax = wide.abs().amax(1)
    scale = torch.where(amax > 0, amax / E4M3_MAX, torch.ones_like(amax))
    return (wide / scale[:, None]).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


@cache
def variant(tiles: int, shape: Shape, out: str = "bf16") -> Variant:
    """The product for one number of token tiles and one shape."""
    return Variant(
        dense_fp8,
        (
            ("w_ptr", "*u8/16"),
            ("w_scale_ptr", "*fp32/16"),
            ("x_ptr", "*u8/16"),
            ("x_scale_ptr", "*fp32/16"),
            ("out_ptr", f"*{out}/16"),
            ("M", "i32"),
            ("N", "i32"),
            ("K", "i32/16"),
        ),
        shape.constants(tiles),
        warps=shape.warps,
        overlap=shape.overlap,
    )


@cache
def quantiser(k: int) -> Variant:
    """The token quantiser for K up to the next power of two."""
    return Variant(
        quantise_tokens,
        (("x_ptr", "*bf16/16"), ("out_ptr", "*fp8e4nv/16"), ("scale_ptr", "*fp32"), ("K", "i32/16")),
        (("WIDTH", 1 << (k - 1).bit_length()), ("OVERLAP", True), ("FAST", not INTERPRETED)),
        warps=8,
        overlap=True,
    )


def prepare_for(n: int, k: int, device: int) -> None:
    """Compile or load what a layer needs, before any request: 1 to MAX_TOKENS tokens."""
    prepare(quantiser(k), device)
    for tokens in TOKEN_STEPS:
        prepare(variant(tiles_for(tokens), shape_for(n, tokens)), device)


def quantise(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> None:
    """out e4m3 [M, K], scale fp32 [M] from x bf16 [M, K]."""
    if x.shape[0] == 0:
        return
    run(quantiser(x.shape[1]), (x.shape[0],), {"x_ptr": x, "out_ptr": out, "scale_ptr": scale, "K": x.shape[1]})


def product(
    x: torch.Tensor, x_scale: torch.Tensor, w: torch.Tensor, w_scale: torch.Tensor, out: torch.Tensor, shape: Shape
) -> None:
    """out bf16 or fp32 [M, N] from e4m3 x [M, K], fp32 [M], e4m3 w [>= N, K], fp32 [>= N]."""
    tokens, k = x.shape
    n = out.shape[1]
    if k % 64:
        raise ValueError(f"K={k} is no multiple of 64")
    if tokens == 0:
        return
    kind = "bf16" if out.dtype == torch.bfloat16 else "fp32"
    arguments = {
        "w_ptr": w.view(torch.uint8),
        "w_scale_ptr": w_scale,
        "x_ptr": x.view(torch.uint8),
        "x_scale_ptr": x_scale,
        "out_ptr": out,
        "M": tokens,
        "N": n,
        "K": k,
    }
    run(variant(tiles_for(tokens), shape, kind), (-(-n // shape.program_rows),), arguments)
