"""Launcher of mhc, and the probe that decides whether a weight may be read as bf16."""

from __future__ import annotations

from functools import cache

import torch

from experimental.launch import Variant, prepare, run
from experimental.mhc.kernel import post_pre

STREAMS = 4
MIXES = STREAMS * (STREAMS + 2)
# vLLM fuses the two steps for up to this many tokens.
MAX_TOKENS = 32
# Rows of the weight a program may take.
TILES = (1, 2, 4, 8)
# Columns a program takes at a time: its whole share at H = 4096 in eight splits.
BLOCK = 512


def lost(weight: torch.Tensor) -> int:
    """How many values of an fp32 weight bf16 does not hold bit for bit."""
    back = weight.bfloat16().float()
    return int((back.view(torch.int32) != weight.contiguous().view(torch.int32)).sum())


def tile_for(tokens: int) -> int:
    """Rows of the weight a program takes: the fastest on the H200, or within 4 % of it (README), with a program for
    each of GB10's 48 SMs at one token.
    """
    return 4 if tokens < 4 else 8


@cache
def variant(tile: int, stored: str = "bf16") -> Variant:
    """The kernel for one tile and one type of weight ("bf16" or "fp32")."""
    return Variant(
        post_pre,
        (
            ("comb_ptr", "*fp32/16"),
            ("residual_ptr", "*bf16/16"),
            ("post_ptr", "*fp32/16"),
            ("x_ptr", "*bf16/16"),
            ("weight_ptr", f"*{stored}/16"),
            ("mixes_ptr", "*fp32/16"),
            ("squares_ptr", "*fp32"),
            ("out_ptr", "*bf16/16"),
            ("M", "i32"),
            ("H", "i32/16"),
            ("per_split", "i32/16"),
        ),
        (("STREAMS", STREAMS), ("MIXES", MIXES), ("TILE", tile), ("BLOCK", BLOCK)),
        warps=4,
    )


def prepare_for(device: int) -> None:
    """Compile or load what 1 to MAX_TOKENS tokens need, before any request and any graph."""
    for tokens in (1, MAX_TOKENS):
        prepare(variant(tile_for(tokens)), device)


def fused_post_pre(
    comb: torch.Tensor,
    residual: torch.Tensor,
    post: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    splits: int,
    tile: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(mixes [splits, T, 24], squares [splits, T], new residual [T, 4, H]); arguments and meaning as in kernel.py.

    Raises ValueError for what the kernel does not serve: other than four streams, H that the splits do not share in
    steps of 16, tensors that are not contiguous.
    """
    tokens, streams, hidden = residual.shape
    if streams != STREAMS or weight.numel() != MIXES * STREAMS * hidden or hidden % (16 * splits):
        raise ValueError(
            f"mhc takes {STREAMS} streams, a weight of {MIXES} rows and H in {splits} splits of 16s, got "
            f"{tuple(residual.shape)} and {tuple(weight.shape)}"
        )
    if not all(tensor.is_contiguous() for tensor in (comb, residual, post, x, weight)):
        raise ValueError("mhc takes contiguous tensors")
    mixes = torch.empty((splits, tokens, MIXES), dtype=torch.float32, device=residual.device)
    squares = torch.empty((splits, tokens), dtype=torch.float32, device=residual.device)
    out = torch.empty_like(residual)
    if tokens:
        tile = tile or tile_for(tokens)
        stored = "bf16" if weight.dtype == torch.bfloat16 else "fp32"
        run(
            variant(tile, stored),
            (tokens, MIXES // tile, splits),
            {
                "comb_ptr": comb, "residual_ptr": residual, "post_ptr": post, "x_ptr": x, "weight_ptr": weight,
                "mixes_ptr": mixes, "squares_ptr": squares, "out_ptr": out, "M": tokens, "H": hidden,
                "per_split": hidden // splits,
            },
        )  # fmt: skip
    return mixes, squares, out
