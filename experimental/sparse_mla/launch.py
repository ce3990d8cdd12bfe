"""Shapes and launcher of sparse_mla; the arguments' meaning is in kernel.py."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from experimental.launch import Variant, prepare, run
from experimental.sparse_mla.kernel import attend, combine

WIDTH = 512
LOG2E = 1.4426950408889634
# Beyond this many programs a split brings nothing: two programs for each multiprocessor of an H200.
PROGRAMS = 264
# A split shorter than this spends more on its combine than it saves.
SHORTEST_SPLIT = 64


@dataclass(frozen=True)
class Shape:
    """How the kernel is compiled: rows gathered at a time, and warps."""

    rows: int
    warps: int


def shape_for(heads: int) -> Shape:
    """The compiled form for `heads`: best of those tried on an H200 (notes/kernels2.md).

    Beyond 32 heads, tiles of 32 rows take 102,400 bytes of shared memory, more than the 101,376 of GB10.
    """
    return Shape(rows=32 if heads <= 32 else 16, warps=4 if heads <= 16 else 8)


def padded_heads(heads: int) -> int:
    """Heads as the matrix unit takes them: a power of two, at least 16."""
    return max(16, _power_of_two(heads))


def splits_for(tokens: int, topk: int) -> int:
    """How many programs share one token's rows: 1 once the tokens alone fill the device."""
    wanted = max(1, PROGRAMS // max(tokens, 1))
    return max(1, min(wanted, _ceil(topk, SHORTEST_SPLIT)))


def rows_per_split(topk: int, splits: int, rows: int) -> int:
    """Rows each split takes: its share of topk, rounded up to whole tiles of `rows`."""
    return _ceil(_ceil(topk, splits), rows) * rows


@cache
def attention(heads: int, shape: Shape, *, fp8: bool, strided: bool, split: bool) -> Variant:
    """The kernel for one padded head count, cache type and layout; `split` leaves the division to `joining`."""
    stored = "u8" if fp8 else "bf16"
    return Variant(
        attend,
        (
            ("q_ptr", "*bf16/16"),
            ("kv_ptr", f"*{stored}/16"),
            ("idx_ptr", "*i32/16"),
            ("len_ptr", "*i32"),
            ("out_ptr", "*bf16/16"),
            ("acc_ptr", "*fp32/16"),
            ("max_ptr", "*fp32"),
            ("sum_ptr", "*fp32"),
            ("stride_qt", "i32/16"),
            ("stride_qh", "i32/16"),
            ("stride_it", "i32/16"),
            ("stride_ot", "i32/16"),
            ("stride_oh", "i32/16"),
            ("block_rows", "i32"),
            ("block_stride", "i32/16"),
            ("scale_log2", "fp32"),
            ("kv_scale", "fp32"),
            ("heads", "i32"),
            ("rows_per_split", "i32/16"),
        ),
        (
            ("HEADS", heads),
            ("D", WIDTH),
            ("ROWS", shape.rows),
            ("FP8", fp8),
            ("STRIDED", strided),
            ("SPLIT", split),
        ),
        warps=shape.warps,
    )


@cache
def joining(splits: int) -> Variant:
    """The kernel that adds up to `splits` (a power of two) splits."""
    return Variant(
        combine,
        (
            ("acc_ptr", "*fp32/16"),
            ("max_ptr", "*fp32"),
            ("sum_ptr", "*fp32"),
            ("out_ptr", "*bf16/16"),
            ("stride_ot", "i32/16"),
            ("stride_oh", "i32/16"),
            ("kv_scale", "fp32"),
            ("heads", "i32"),
            ("splits", "i32"),
        ),
        (("D", WIDTH), ("SPLITS", splits)),
        warps=4 if splits <= 16 else 8,
    )


def variants(heads: int, topk: int, *, fp8: bool, strided: bool = False) -> tuple[Variant, ...]:
    """Everything that any number of tokens launches, for one head count, width of idx and cache type."""
    most = _power_of_two(splits_for(1, topk))
    shape = shape_for(heads)
    both = tuple(
        attention(padded_heads(heads), shape, fp8=fp8, strided=strided, split=split) for split in (False, True)
    )
    return (*both, *(joining(1 << n) for n in range(1, most.bit_length())))


def prepare_for(heads: int, topk: int, device: int, *, fp8: bool) -> None:
    """Compile or load what a flat cache needs, before any request and any graph."""
    for variant in variants(heads, topk, fp8=fp8):
        prepare(variant, device)


def sparse_mla(
    q: torch.Tensor,
    kv: torch.Tensor,
    idx: torch.Tensor,
    lens: torch.Tensor,
    sm_scale: float,
    kv_scale: float = 1.0,
    block_rows: int = 0,
    block_stride: int = 0,
    out: torch.Tensor | None = None,
    shape: Shape | None = None,
    splits: int | None = None,
) -> torch.Tensor:
    """Attention output [T, H, 512] bf16; arguments as in kernel.py.

    kv: e4m3 (or uint8 holding e4m3) or bf16 storage; `block_rows` > 0 selects the block-strided layout with
    `block_stride` elements between blocks. An idx whose rows are not 64-byte steps is copied to one that is.
    Raises ValueError for what the kernel does not serve.
    """
    tokens, heads, width = q.shape
    if width != WIDTH or q.dtype != torch.bfloat16 or idx.dim() != 2 or idx.shape[0] != tokens or heads > 64:
        raise ValueError(
            f"sparse_mla takes bf16 q [T, up to 64, {WIDTH}] and idx [T, topk], got {q.dtype} {tuple(q.shape)} and "
            f"{tuple(idx.shape)}"
        )
    if q.stride(2) != 1 or q.stride(0) % 16 or q.stride(1) % 16 or block_stride % 16:
        raise ValueError(f"sparse_mla takes rows in steps of 16 elements, got {q.stride()} and {block_stride}")
    out = torch.empty((tokens, heads, WIDTH), dtype=q.dtype, device=q.device) if out is None else out
    if tokens == 0 or idx.shape[1] == 0:
        return out.zero_()
    if idx.stride(1) != 1 or idx.stride(0) % 16:
        idx = torch.nn.functional.pad(idx, (0, -idx.shape[1] % 16), value=-1)
    topk = idx.shape[1]
    fp8 = kv.dtype in (torch.uint8, torch.float8_e4m3fn)
    shape = shape or shape_for(heads)
    per = rows_per_split(topk, splits or splits_for(tokens, topk), shape.rows)
    splits = _ceil(topk, per)
    if splits > 1:
        acc = torch.empty((tokens, splits, heads, WIDTH), dtype=torch.float32, device=q.device)
        peak = torch.empty((2, tokens, splits, heads), dtype=torch.float32, device=q.device)
    else:  # never touched
        acc, peak = out, torch.empty((2, 1), dtype=torch.float32, device=q.device)
    run(
        attention(padded_heads(heads), shape, fp8=fp8, strided=block_rows > 0, split=splits > 1),
        (tokens, splits),
        {
            "q_ptr": q, "kv_ptr": kv.view(torch.uint8) if fp8 else kv, "idx_ptr": idx, "len_ptr": lens, "out_ptr": out,
            "acc_ptr": acc, "max_ptr": peak[0], "sum_ptr": peak[1], "stride_qt": q.stride(0), "stride_qh": q.stride(1),
            "stride_it": idx.stride(0), "stride_ot": out.stride(0), "stride_oh": out.stride(1),
            "block_rows": block_rows or 1, "block_stride": block_stride, "scale_log2": sm_scale * kv_scale * LOG2E,
            "kv_scale": kv_scale, "heads": heads, "rows_per_split": per,
        },
    )  # fmt: skip
    if splits > 1:
        run(
            joining(_power_of_two(splits)),
            (tokens, heads),
            {
                "acc_ptr": acc, "max_ptr": peak[0], "sum_ptr": peak[1], "out_ptr": out, "stride_ot": out.stride(0),
                "stride_oh": out.stride(1), "kv_scale": kv_scale, "heads": heads, "splits": splits,
            },
        )  # fmt: skip
    return out


def _ceil(value: int, step: int) -> int:
    return (value + step - 1) // step


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
