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

import triton
import triton.language as tl


@triton.jit
def _rows_at(kv_ptr, row, block_rows, block_stride, D: tl.constexpr, STRIDED: tl.constexpr):
    """Pointers [ROWS] to the rows' first elements; an absent row points at row 0 and is masked by its reader."""
    safe = tl.where(row >= 0, row, 0).to(tl.int64)
    if STRIDED:
        offset = (safe // block_rows) * block_stride + (safe % block_rows) * D
    else:
        offset = safe * D
    return kv_ptr + offset


@triton.jit
def _part(rows_ptr, row, FIRST: tl.constexpr, PART: tl.constexpr):
    """Columns FIRST.. of the rows as stored, [ROWS, PART]; zeros where a row is absent."""
    return tl.load(rows_ptr[:, None] + (FIRST + tl.arange(0, PART))[None, :], mask=(row >= 0)[:, None], other=0)


@triton.jit
def _query(q_ptr, kv_ptr, heads, stride_qh, FIRST: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr,
           FP8: tl.constexpr):  # fmt: skip
    """Columns FIRST.. of the token's query [HEADS, PART] in the type of the products."""
    head = tl.arange(0, HEADS)
    offsets = head[:, None] * stride_qh + (FIRST + tl.arange(0, PART))[None, :]
    q = tl.load(q_ptr + offsets, mask=head[:, None] < heads, other=0.0)
    return q.to(tl.float16) if FP8 else q.to(kv_ptr.dtype.element_ty)


@triton.jit
def _values(stored, FP8: tl.constexpr):
    """Stored bytes as numbers. Loaded as uint8 because Triton 3.6 cannot mask e4m3; e4m3 is exact in fp16."""
    return stored.to(tl.float8e4nv, bitcast=True).to(tl.float16) if FP8 else stored


@triton.jit
def _scores(kv, q, score):
    """Adds this part's products to the scores [HEADS, ROWS]."""
    return tl.dot(q, tl.trans(kv), score)


@triton.jit
def _weighted(acc, kv, weight, shrink):
    """Shrinks the sums so far [HEADS, PART] and adds weight x rows."""
    return tl.dot(weight, kv, acc * shrink[:, None])


@triton.jit
def _keep(acc_ptr, out_ptr, acc, place, norm, heads, stride_oh, FIRST: tl.constexpr, PART: tl.constexpr,
          HEADS: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """Stores columns FIRST.. of the result: raw sums for `combine` when split, else the normalised output."""
    head = tl.arange(0, HEADS)
    dim = FIRST + tl.arange(0, PART)
    if SPLIT:
        tl.store(acc_ptr + place[:, None] * D + dim[None, :], acc, mask=head[:, None] < heads)
    else:
        out = (acc * norm[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + head[:, None] * stride_oh + dim[None, :], out, mask=head[:, None] < heads)


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
):
    """One program: token program_id(0), rows of split program_id(1), all heads (padded to HEADS).

    A row's 512 columns are handled in four parts of 128, so that no more than one part is in registers as numbers.
    """
    PART: tl.constexpr = D // 4
    token = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, tl.load(len_ptr + token))
    head = tl.arange(0, HEADS)

    q_row = q_ptr + token * stride_qt
    q0 = _query(q_row, kv_ptr, heads, stride_qh, 0, PART, HEADS, FP8)
    q1 = _query(q_row, kv_ptr, heads, stride_qh, PART, PART, HEADS, FP8)
    q2 = _query(q_row, kv_ptr, heads, stride_qh, 2 * PART, PART, HEADS, FP8)
    q3 = _query(q_row, kv_ptr, heads, stride_qh, 3 * PART, PART, HEADS, FP8)
    largest = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    acc0 = tl.zeros([HEADS, PART], tl.float32)
    acc1 = tl.zeros_like(acc0)
    acc2 = tl.zeros_like(acc0)
    acc3 = tl.zeros_like(acc0)

    # Triton does not pipeline a gather whose bytes are converted before use, so it is done by hand: while a tile is
    # multiplied, the bytes of the next one and the row numbers of the one after are on their way.
    slot = tl.arange(0, ROWS)
    idx_row = idx_ptr + token * stride_it
    coming = tl.load(idx_row + first + slot, mask=first + slot < last, other=-1)
    rows_ptr = _rows_at(kv_ptr, coming, block_rows, block_stride, D, STRIDED)
    stored0 = _part(rows_ptr, coming, 0, PART)
    stored1 = _part(rows_ptr, coming, PART, PART)
    stored2 = _part(rows_ptr, coming, 2 * PART, PART)
    stored3 = _part(rows_ptr, coming, 3 * PART, PART)
    after = tl.load(idx_row + first + ROWS + slot, mask=first + ROWS + slot < last, other=-1)
    for start in tl.range(first, last, ROWS):
        valid = coming >= 0
        score = tl.zeros([HEADS, ROWS], tl.float32)
        coming = after
        rows_ptr = _rows_at(kv_ptr, coming, block_rows, block_stride, D, STRIDED)
        kv0 = _values(stored0, FP8)
        stored0 = _part(rows_ptr, coming, 0, PART)
        score = _scores(kv0, q0, score)
        kv1 = _values(stored1, FP8)
        stored1 = _part(rows_ptr, coming, PART, PART)
        score = _scores(kv1, q1, score)
        kv2 = _values(stored2, FP8)
        stored2 = _part(rows_ptr, coming, 2 * PART, PART)
        score = _scores(kv2, q2, score)
        kv3 = _values(stored3, FP8)
        stored3 = _part(rows_ptr, coming, 3 * PART, PART)
        score = _scores(kv3, q3, score)
        ahead = start + 2 * ROWS + slot
        after = tl.load(idx_row + ahead, mask=ahead < last, other=-1)

        score = tl.where(valid[None, :], score * scale_log2, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(score, 1))
        safe = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weight = tl.exp2(score - safe[:, None])
        shrink = tl.exp2(largest - safe)
        total = total * shrink + tl.sum(weight, 1)
        largest = new_largest
        weight = weight.to(kv0.dtype)
        acc0 = _weighted(acc0, kv0, weight, shrink)
        acc1 = _weighted(acc1, kv1, weight, shrink)
        acc2 = _weighted(acc2, kv2, weight, shrink)
        acc3 = _weighted(acc3, kv3, weight, shrink)

    place = (token * tl.num_programs(1) + split) * heads + head
    norm = tl.where(total > 0, kv_scale / tl.where(total > 0, total, 1.0), 0.0)
    out_row = out_ptr + token * stride_ot
    _keep(acc_ptr, out_row, acc0, place, norm, heads, stride_oh, 0, PART, HEADS, D, SPLIT)
    _keep(acc_ptr, out_row, acc1, place, norm, heads, stride_oh, PART, PART, HEADS, D, SPLIT)
    _keep(acc_ptr, out_row, acc2, place, norm, heads, stride_oh, 2 * PART, PART, HEADS, D, SPLIT)
    _keep(acc_ptr, out_row, acc3, place, norm, heads, stride_oh, 3 * PART, PART, HEADS, D, SPLIT)
    if SPLIT:
        tl.store(max_ptr + place, largest, mask=head < heads)
        tl.store(sum_ptr + place, total, mask=head < heads)


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
