"""Exact top-k from k + 32 candidates: ties at the cut go to the lowest ids, ids come out ascending.

vLLM's kernels return the right pools in a run-dependent order, and a run-dependent subset among pools whose score
equals the k-th. Pools are expanded in list order and sparse attention sums in that order, so identical requests
drift apart. Here the k-th score is found exactly by a search over its bits; all above it are kept, the rest is
filled by the lowest ids that hold it. When the candidates do not decide (all valid, and the lowest of them ties
with the k-th) the row is read once more for the tied ids.

Shapes: logits [rows, width] fp32; candidates [rows, c] int32 relative to the row's start, -1 where empty, c >= k;
starts, ends [rows] int32 columns of logits; out [rows, k] int32, ascending, -1 last. NaN counts as lowest.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _ordered(score):
    """fp32 to a uint32 whose unsigned order is the scores' order; NaN is 0, both zeros are equal."""
    score = tl.where(score == 0.0, 0.0, score)
    bits = score.to(tl.uint32, bitcast=True)
    negative = (bits >> 31) != 0
    key = tl.where(negative, ~bits, bits | 0x80000000)
    return tl.where(score != score, tl.zeros_like(key), key)


@triton.jit
def refine(
    logits_ptr,
    candidates_ptr,
    starts_ptr,
    ends_ptr,
    out_ptr,
    stride_logits,
    stride_candidates,
    stride_out,
    count,
    k,
    C: tl.constexpr,
    SCAN: tl.constexpr,
):
    """One program a row; C is a power of two of at least `count` candidates, SCAN the rescan's step."""
    row = tl.program_id(0).to(tl.int64)
    start = tl.load(starts_ptr + row)
    end = tl.load(ends_ptr + row)
    slot = tl.arange(0, C)
    ids = tl.load(candidates_ptr + row * stride_candidates + slot, mask=slot < count, other=-1)
    valid = (ids >= 0) & (ids < end - start)
    ids = tl.where(valid, ids, 0x7FFFFFFF)
    score = tl.load(logits_ptr + row * stride_logits + start + tl.where(valid, ids, 0), mask=valid, other=0.0)
    key = tl.where(valid, _ordered(score), tl.zeros([C], tl.uint32))
    found = tl.sum(valid.to(tl.int32), 0)

    # The k-th largest key, bit by bit from the top; with k or fewer candidates everything is kept.
    cut = tl.full([], 0, tl.uint32)
    for step in tl.static_range(32):
        bit = tl.full([], 1, tl.uint32) << (31 - step)
        higher = tl.sum((valid & (key >= (cut | bit))).to(tl.int32), 0)
        cut = tl.where(higher >= k, cut | bit, cut)
    above = valid & (key > cut)
    tied = valid & (key == cut)
    free = k - tl.sum(above.to(tl.int32), 0)

    lowest = tl.min(tl.where(valid, key, tl.full([C], 0xFFFFFFFF, tl.uint32)), 0)
    undecided = (found == count) & (found > k) & (lowest == cut) & (end - start > count)
    # Highest id that may still be kept among the tied: the free-th lowest, found bit by bit as above.
    limit = tl.full([], 0, tl.int32)
    if undecided:
        taken = tl.full([], 0, tl.int32)
        lane = tl.arange(0, SCAN)
        position = start
        while (position < end) & (taken < free):
            here = position + lane
            inside = here < end
            more = tl.load(logits_ptr + row * stride_logits + here, mask=inside, other=0.0)
            match = inside & (_ordered(more) == cut)
            rank = tl.cumsum(match.to(tl.int32), 0) + taken
            last = match & (rank == free)
            limit = tl.maximum(limit, tl.max(tl.where(last, here - start, 0), 0))
            keep = match & (rank <= free)
            # Tied ids are written behind the place of those above the cut; the sort below puts them right.
            tl.store(out_ptr + row * stride_out + (k - free) + rank - 1, here - start, mask=keep)
            taken += tl.sum(match.to(tl.int32), 0)
            position += SCAN
        tl.debug_barrier()
        kept = tl.where(above, ids, 0x7FFFFFFF)
        order = tl.sort(kept)
        behind = tl.load(out_ptr + row * stride_out + slot, mask=(slot >= k - free) & (slot < k), other=0x7FFFFFFF)
        tl.debug_barrier()
        order = tl.sort(tl.where(slot < k - free, order, behind))
        tl.store(out_ptr + row * stride_out + slot, tl.where(order == 0x7FFFFFFF, -1, order), mask=slot < k)
    else:
        for step in tl.static_range(31):
            half = tl.full([], 1, tl.int32) << (30 - step)
            below = tl.sum((tied & (ids < (limit | half))).to(tl.int32), 0)
            limit = tl.where(below < free, limit | half, limit)
        kept = tl.where(above | (tied & (ids <= limit)), ids, 0x7FFFFFFF)
        order = tl.sort(kept)
        tl.store(out_ptr + row * stride_out + slot, tl.where(order == 0x7FFFFFFF, -1, order), mask=slot < k)
