"""Shapes and variants of dense_w4, and its launcher."""

from __future__ import annotations

from functools import cache

import torch

from experimental.dense_w4.kernel import dense_w4
from experimental.launch import Variant, prepare, run
from experimental.nvfp4.cut import TOKEN_STEPS, Shape, tiles_for

MAX_TOKENS = TOKEN_STEPS[-1]


def shape_for(n: int, k: int, tokens: int) -> Shape:
    """The cut for a layer and a token count: best on an H200 by bench/kernels_sweep.py, with few kernels to compile."""
    if k < 1024:
        return Shape(4, 1, 2, 1) if tokens <= 16 or tokens > 32 else Shape(4, 1, 4, 1)
    if tokens <= 8 and n <= 2048:
        return Shape(16, 1, 2, 2)
    if tokens <= 8:
        return Shape(4, 1, 4, 2) if n >= 6000 else Shape(16, 1, 4, 1)
    if tokens <= 16:
        return Shape(8, 1, 8, 1) if n >= 6000 else Shape(8, 1, 4, 1)
    return Shape(4, 1, 4, 1) if tokens <= 32 else Shape(4, 1, 2, 1)  # four groups of rows would spill


# The most rows any of these takes in a program: what w's rows are padded to.
PAD = 64


@cache
def variant(tiles: int, shape: Shape, out: str = "bf16") -> Variant:
    """The kernel for one number of token tiles and one shape."""
    pointers = (("w_ptr", "*i16/16"), ("s_ptr", "*i16/16"), ("x_ptr", "*bf16/16"), ("out_ptr", f"*{out}/16"))
    return Variant(
        dense_w4,
        (*pointers, ("alpha_ptr", "*fp32"), ("M", "i32"), ("N", "i32"), ("K", "i32/16"), ("WORDS", "i32/16")),
        shape.constants(tiles),
        warps=shape.warps,
        overlap=shape.overlap,
    )


def product(
    x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, alpha: torch.Tensor, out: torch.Tensor, shape: Shape
) -> None:
    """out bf16 or fp32 [M, N] = x bf16 [M, K] @ w.T.

    w int16 [>= N, K/4] (four values a word), s int16 [>= N, K/32] (two e4m3 bytes), alpha fp32 [1]: global times 2^14.
    """
    tokens, k = x.shape
    n = out.shape[1]
    if k % 128:
        raise ValueError(f"K={k} is no multiple of 128")
    if tokens == 0:
        return
    kind = "bf16" if out.dtype == torch.bfloat16 else "fp32"
    arguments = {"w_ptr": w, "s_ptr": s, "x_ptr": x, "out_ptr": out, "alpha_ptr": alpha, "M": tokens, "N": n}
    arguments |= {"K": k, "WORDS": k // 4}
    run(variant(tiles_for(tokens), shape, kind), (-(-n // shape.program_rows),), arguments)


def prepare_for(n: int, k: int, device: int) -> None:
    """Compile or load what a layer needs, before any request: 1 to MAX_TOKENS tokens."""
    for tokens in TOKEN_STEPS:
        prepare(variant(tiles_for(tokens), shape_for(n, k, tokens)), device)
