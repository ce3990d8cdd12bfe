"""Sparse MLA attention over gathered latent rows, K = V (one 512-wide row a cached token).

    out[t, h] = sum_j softmax_j(sm_scale * q[t, h] . kv[idx[t, j]]) kv[idx[t, j]]      j < lens[t]

Shapes: q [T, H, 512] bf16 with a contiguous last dimension; kv rows 512 wide, e4m3 with one scale for the
whole cache, or bf16; idx [T, topk] int32 row numbers, valid ones first, then -1; lens [T] int32; out [T, H, 512]
bf16. A token without rows gives zeros. Two cache layouts: flat (row r at r * 512) and block-strided (0.32: row r
at (r // block_rows) * block_stride + (r % block_rows) * 512). All arithmetic is accumulated in fp32.

Nothing here reads a value back to the host, so both paths can be captured in a CUDA graph; launch shapes depend
on T, H and topk only. The order of summation is fixed by them, so a repeat gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

WIDTH = 512
LOG2E = 1.4426950408889634
# Beyond this many programs a split brings nothing: two programs for each multiprocessor of an H200.
PROGRAMS = 264
# A split shorter than this spends more on its combine than it saves.
SHORTEST_SPLIT = 64


@dataclass(frozen=True)
class Shape:
    """How the kernel is compiled: rows gathered at a time, warps, pipeline stages, keys first or heads first.

    keys_first puts the gathered rows on the matrix unit's M side (wide on Hopper); heads first keeps H there.
    """

    rows: int
    warps: int
    stages: int
    keys_first: bool


@triton.jit
def attend(
    q_ptr,
    kv_ptr,
    idx_ptr,
    len_ptr,
    out_ptr,
    acc_ptr,
    max_ptr,
    sum_ptr,
    stride_qt,
    stride_qh,
    stride_it,
    stride_ot,
    stride_oh,
    block_rows,
    block_stride,
    scale_log2,
    kv_scale,
    heads,
    rows_per_split,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    FP8: tl.constexpr,
    STRIDED: tl.constexpr,
    SPLIT: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
):
    """One program: token program_id(0), rows of split program_id(1), all heads (padded to HEADS)."""
    token = tl.program_id(0)
    split = tl.program_id(1)
    length = tl.load(len_ptr + token)
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, length)

    head = tl.arange(0, HEADS)
    dim = tl.arange(0, D)
    q_offsets = head[:, None] * stride_qh + dim[None, :]
    q = tl.load(q_ptr + token.to(tl.int64) * stride_qt + q_offsets, mask=head[:, None] < heads, other=0.0)
    q = q.to(tl.float16) if FP8 else q.to(kv_ptr.dtype.element_ty)

    largest = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    if KEYS_FIRST:
        q = tl.trans(q)
        acc = tl.zeros([D, HEADS], tl.float32)
    else:
        acc = tl.zeros([HEADS, D], tl.float32)

    slot = tl.arange(0, ROWS)
    for start in tl.range(first, last, ROWS):
        inside = (start + slot) < last
        row = tl.load(idx_ptr + token.to(tl.int64) * stride_it + start + slot, mask=inside, other=-1)
        valid = inside & (row >= 0)
        row = tl.where(valid, row, 0).to(tl.int64)
        if STRIDED:
            offset = (row // block_rows) * block_stride + (row % block_rows) * D
        else:
            offset = row * D
        address = kv_ptr + offset[:, None] + dim[None, :]
        if FP8:
            # Loaded as bytes: Triton 3.6 cannot load e4m3 with a mask. Every e4m3 value is exact in fp16.
            kv = tl.load(address, mask=valid[:, None], other=0).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        else:
            kv = tl.load(address, mask=valid[:, None], other=0.0)

        if KEYS_FIRST:
            score = tl.dot(kv, q) * scale_log2
            score = tl.where(valid[:, None], score, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(score, 0))
            safe = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            weight = tl.exp2(score - safe[None, :])
            shrink = tl.exp2(largest - safe)
            total = total * shrink + tl.sum(weight, 0)
            acc = acc * shrink[None, :]
            acc = tl.dot(tl.trans(kv), weight.to(kv.dtype), acc)
        else:
            score = tl.dot(q, tl.trans(kv)) * scale_log2
            score = tl.where(valid[None, :], score, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(score, 1))
            safe = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            weight = tl.exp2(score - safe[:, None])
            shrink = tl.exp2(largest - safe)
            total = total * shrink + tl.sum(weight, 1)
            acc = acc * shrink[:, None]
            acc = tl.dot(weight.to(kv.dtype), kv, acc)
        largest = new_largest

    if KEYS_FIRST:
        acc = tl.trans(acc)
    if SPLIT:
        splits = tl.num_programs(1)
        place = (token.to(tl.int64) * splits + split) * heads + head
        tl.store(acc_ptr + place[:, None] * D + dim[None, :], acc, mask=head[:, None] < heads)
        tl.store(max_ptr + place, largest, mask=head < heads)
        tl.store(sum_ptr + place, total, mask=head < heads)
    else:
        norm = tl.where(total > 0, kv_scale / tl.where(total > 0, total, 1.0), 0.0)
        out_offsets = head[:, None] * stride_oh + dim[None, :]
        out = (acc * norm[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + token.to(tl.int64) * stride_ot + out_offsets, out, mask=head[:, None] < heads)


@triton.jit
def combine(
    acc_ptr,
    max_ptr,
    sum_ptr,
    out_ptr,
    stride_ot,
    stride_oh,
    kv_scale,
    heads,
    splits,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One program: token program_id(0), head program_id(1); adds the splits in their order."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    dim = tl.arange(0, D)
    part = tl.arange(0, SPLITS)
    place = (token.to(tl.int64) * splits + part) * heads + head
    largest = tl.load(max_ptr + place, mask=part < splits, other=float("-inf"))
    peak = tl.max(largest, 0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    share = tl.exp2(largest - peak)
    total = tl.sum(share * tl.load(sum_ptr + place, mask=part < splits, other=0.0), 0)
    acc = tl.load(acc_ptr + place[:, None] * D + dim[None, :], mask=(part < splits)[:, None], other=0.0)
    norm = tl.where(total > 0, kv_scale / tl.where(total > 0, total, 1.0), 0.0)
    out = tl.sum(acc * share[:, None], 0) * norm
    tl.store(out_ptr + token.to(tl.int64) * stride_ot + head * stride_oh + dim, out.to(out_ptr.dtype.element_ty))


def choose_shape(heads: int, capability: int) -> Shape:
    """The compiled form for `heads` on compute capability `capability` (90, 120, 121).

    GB10 has 101,376 B of shared memory a block; 32 rows of 512 fp16 are 32 KiB a buffer.
    """
    if capability == 90 and heads <= 32:
        return Shape(rows=64, warps=4, stages=2, keys_first=True)
    return Shape(rows=32, warps=4 if heads <= 16 else 8, stages=2, keys_first=False)


def splits_for(tokens: int, topk: int, programs: int = PROGRAMS) -> int:
    """How many programs share one token's rows: 1 once the tokens alone fill the device."""
    wanted = max(1, programs // max(tokens, 1))
    return max(1, min(wanted, -(-topk // SHORTEST_SPLIT)))


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
    """Attention output [T, H, 512] in q's type; arguments as in the module's docstring.

    kv: e4m3 (or uint8 holding e4m3) or bf16 storage; `block_rows` > 0 selects the block-strided layout with
    `block_stride` elements between blocks. Raises ValueError for shapes the kernel does not serve.
    """
    tokens, heads, width = q.shape
    if width != WIDTH or q.stride(2) != 1 or idx.dim() != 2 or idx.shape[0] != tokens or idx.stride(1) != 1:
        raise ValueError(
            f"sparse_mla takes q [T, H, {WIDTH}] and idx [T, topk], got {tuple(q.shape)}, {tuple(idx.shape)}"
        )
    out = torch.empty_like(q) if out is None else out
    if tokens == 0:
        return out
    fp8 = kv.dtype in (torch.uint8, torch.float8_e4m3fn)
    stored = kv.view(torch.uint8) if kv.dtype == torch.float8_e4m3fn else kv
    topk = idx.shape[1]
    capability = _capability(q)
    shape = shape or choose_shape(heads, capability)
    splits = splits or splits_for(tokens, topk)
    rows_per_split = -(-(-(-topk // splits)) // shape.rows) * shape.rows
    splits = -(-topk // rows_per_split)
    if splits > 1:
        acc = torch.empty((tokens, splits, heads, WIDTH), dtype=torch.float32, device=q.device)
        peak = torch.empty((2, tokens, splits, heads), dtype=torch.float32, device=q.device)
    else:
        acc = out
        peak = out.new_empty((2, 1), dtype=torch.float32)
    padded = max(16, triton.next_power_of_2(heads))
    launch: Any = attend[(tokens, splits)]
    launch(
        q, stored, idx, lens, out, acc, peak[0], peak[1],
        q.stride(0), q.stride(1), idx.stride(0), out.stride(0), out.stride(1),
        block_rows or 1, block_stride, sm_scale * kv_scale * LOG2E, kv_scale, heads, rows_per_split,
        HEADS=padded, D=WIDTH, ROWS=shape.rows, FP8=fp8, STRIDED=block_rows > 0, SPLIT=splits > 1,
        KEYS_FIRST=shape.keys_first, num_warps=shape.warps, num_stages=shape.stages,
    )  # fmt: skip
    if splits > 1:
        join: Any = combine[(tokens, heads)]
        join(
            acc, peak[0], peak[1], out, out.stride(0), out.stride(1), kv_scale, heads, splits,
            D=WIDTH, SPLITS=triton.next_power_of_2(splits), num_warps=4,
        )  # fmt: skip
    return out


def _capability(tensor: torch.Tensor) -> int:
    """90, 121, ...; 121 on a CPU, where the interpreter runs the form that GB10 gets."""
    if tensor.device.type != "cuda":
        return 121
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return major * 10 + minor


def reference(
    q: torch.Tensor,
    kv: torch.Tensor,
    idx: torch.Tensor,
    lens: torch.Tensor,
    sm_scale: float,
    kv_scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """The same in plain torch over a flat cache, in `dtype` throughout: [T, H, 512]."""
    if kv.dtype == torch.uint8:
        kv = kv.view(torch.float8_e4m3fn)
    values = kv.to(torch.float32).to(dtype) * kv_scale
    outputs = []
    for token in range(q.shape[0]):
        rows = idx[token, : int(lens[token])].long()
        rows = rows[rows >= 0]
        if len(rows) == 0:
            outputs.append(torch.zeros((q.shape[1], WIDTH), dtype=dtype, device=q.device))
            continue
        picked = values[rows]
        weight = torch.softmax(q[token].to(dtype) @ picked.T * sm_scale, dim=-1)
        outputs.append(weight @ picked)
    return torch.stack(outputs) if outputs else q.to(dtype)
