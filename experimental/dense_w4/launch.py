"""Shapes and variants of dense_w4, and its launcher."""

from __future__ import annotations

from functools import cache

import torch

from experimental.dense_w4.kernel import dense_w4
from experimental.launch import Variant, prepare, run
from experimental.nvfp4.cut import TOKEN_STEPS, Shape, tiles_for

MAX_TOKENS = TOKEN_STEPS[-1]


# By the most tokens: (most N, most K, cut), the first that fits. Best on an H200 (notes/kernels1.md): one step over K
# where K is short, eight rows a program where N is, and no second wave of a few programs (132 multiprocessors).
ANY = 1 << 31
CUTS = {
    8: (
        (ANY, 512, Shape(2, 1, 4, 2)),
        (ANY, 1023, Shape(8, 1, 2, 1)),
        (1024, ANY, Shape(16, 1, 1, 2)),
        (2048, ANY, Shape(16, 1, 2, 2)),
        (132 * 32, ANY, Shape(16, 1, 4, 1)),
        (5999, ANY, Shape(8, 1, 2, 1)),
        (264 * 32, ANY, Shape(4, 1, 4, 2)),
        (ANY, ANY, Shape(8, 1, 2, 1)),
    ),
    16: (
        (ANY, 512, Shape(4, 1, 2, 1)),
        (ANY, 1023, Shape(8, 1, 2, 1)),
        (1024, ANY, Shape(16, 1, 1, 1)),
        (2048, ANY, Shape(16, 1, 2, 1)),
        (132 * 32, 2048, Shape(8, 1, 2, 1)),
        (132 * 32, ANY, Shape(8, 1, 4, 1)),
        (132 * 64, ANY, Shape(8, 1, 8, 1)),
        (ANY, ANY, Shape(8, 1, 4, 1)),
    ),
    32: ((ANY, ANY, Shape(4, 1, 4, 1)),),
    64: ((ANY, ANY, Shape(4, 1, 2, 1)),),  # four groups of rows would spill
}


def shape_for(n: int, k: int, tokens: int) -> Shape:
    """The cut for a layer and up to MAX_TOKENS tokens."""
    cuts = CUTS[next(step for step in TOKEN_STEPS if tokens <= step)]
    return next(cut for rows, width, cut in cuts if n <= rows and k <= width)


# The most rows any of these takes in a program: what w's rows are padded to.
PAD = 64


def arrange(packed: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and scales in the kernel's order (kernel.py): int16 [N, K/4] and [N, K/32].

    packed uint8 [N, K/2] and scales uint8 [N, K/16] as `quantise` makes them. Raises ValueError unless 128 divides K.
    """
    rows, k = packed.shape[0], 2 * packed.shape[1]
    if k % 128:
        raise ValueError(f"K={k} is no multiple of 128")

    def in_order(tensor: torch.Tensor) -> torch.Tensor:
        groups = tensor.reshape(rows, k // 128, 2, 4, -1).transpose(2, 3)
        return groups.reshape(tensor.shape).contiguous().view(torch.int16)

    return in_order(packed), in_order(scales)


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

    w int16 [>= N, K/4] (four values a word) and s int16 [>= N, K/32] (two e4m3 bytes) as `arrange` gives them; alpha
    fp32 [1]: global times 2^14.
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
