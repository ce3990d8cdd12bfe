"""Launcher of topk; the arguments' meaning is in kernel.py."""

from __future__ import annotations

from functools import cache

import torch

from experimental.launch import Variant, prepare, run
from experimental.topk.kernel import refine

# Candidates asked for beyond k: enough that a rescan is rare with real scores.
SPARE = 32
# Columns a rescan reads at a time.
SCAN = 1024


@cache
def variant(count: int) -> Variant:
    """The kernel for up to the next power of two of `count` candidates a row."""
    return Variant(
        refine,
        (
            ("logits_ptr", "*fp32/16"),
            ("candidates_ptr", "*i32/16"),
            ("starts_ptr", "*i32"),
            ("ends_ptr", "*i32"),
            ("out_ptr", "*i32"),
            ("stride_logits", "i32"),
            ("stride_candidates", "i32"),
            ("stride_out", "i32"),
            ("count", "i32"),
            ("k", "i32"),
        ),
        (("C", max(16, 1 << (count - 1).bit_length())), ("SCAN", SCAN)),
        warps=4,
    )


def prepare_for(k: int, device: int) -> None:
    """Compile or load before any request and any graph."""
    prepare(variant(k + SPARE), device)


def refine_topk(
    logits: torch.Tensor, candidates: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """Write the deterministic top-k of every row into `out` [rows, k]; arguments as in kernel.py.

    Raises ValueError when there are fewer candidate columns than k or a row is not contiguous.
    """
    rows, k = out.shape
    count = candidates.shape[1]
    if count < k or logits.stride(1) != 1 or candidates.stride(1) != 1 or out.stride(1) != 1:
        raise ValueError(f"refine_topk takes at least k={k} contiguous candidates a row, got {tuple(candidates.shape)}")
    if rows:
        run(
            variant(count),
            (rows,),
            {
                "logits_ptr": logits, "candidates_ptr": candidates, "starts_ptr": starts, "ends_ptr": ends,
                "out_ptr": out, "stride_logits": logits.stride(0), "stride_candidates": candidates.stride(0),
                "stride_out": out.stride(0), "count": count, "k": k,
            },
        )  # fmt: skip
    return out
