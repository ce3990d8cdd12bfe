"""mHC between two sublayers, for few tokens: the residual streams are mixed anew, and projected from registers.

    new[t, j]      = post[t, j] * x[t] + sum_k comb[t, k, j] * residual[t, k]          j, k < 4 streams
    mixes[s, t, n] = sum over j and the s-th part of h of weight[n, j, h] * new[t, j, h]
    squares[s, t]  = sum over j and the s-th part of h of new[t, j, h]^2

Shapes: comb [T, 4, 4], post [T, 4] fp32; residual [T, 4, H], x [T, H] bf16; weight [24, 4, H] bf16 or fp32; out
mixes [splits, T, 24], squares [splits, T] fp32 and the new residual [T, 4, H] bf16, all contiguous. Projection and
squares take the new streams before they are rounded, as vLLM's kernel does. All sums are fp32 in an order that
depends on the compiled form alone, so a repeat gives the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def post_pre(
    comb_ptr,
    residual_ptr,
    post_ptr,
    x_ptr,
    weight_ptr,
    mixes_ptr,
    squares_ptr,
    out_ptr,
    M,
    H,
    per_split,
    STREAMS: tl.constexpr,
    MIXES: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (M, MIXES / TILE, splits): TILE rows of the weight, `per_split` columns; tile 0 stores the new streams."""
    token = tl.program_id(0)
    tile = tl.program_id(1)
    split = tl.program_id(2)
    stream = tl.arange(0, STREAMS)
    row = tile * TILE + tl.arange(0, TILE)
    post = tl.load(post_ptr + token * STREAMS + stream)
    acc = tl.zeros([TILE], tl.float32)
    squares = tl.zeros([STREAMS], tl.float32)
    for start in range(0, per_split, BLOCK):
        local = start + tl.arange(0, BLOCK)
        inside = local < per_split
        h = split * per_split + local
        weight_at = (row[:, None, None] * STREAMS + stream[None, :, None]) * H + h[None, None, :]
        weight = tl.load(weight_ptr + weight_at, mask=inside[None, None, :], other=0.0).to(tl.float32)
        x = tl.load(x_ptr + token * H + h, mask=inside, other=0.0).to(tl.float32)
        new = post[:, None] * x[None, :]
        for old in tl.static_range(STREAMS):
            comb = tl.load(comb_ptr + (token * STREAMS + old) * STREAMS + stream)
            was = tl.load(residual_ptr + (token * STREAMS + old) * H + h, mask=inside, other=0.0).to(tl.float32)
            new += comb[:, None] * was[None, :]
        if tile == 0:
            at = out_ptr + (token * STREAMS + stream[:, None]) * H + h[None, :]
            tl.store(at, new.to(out_ptr.dtype.element_ty), mask=inside[None, :])
            squares += tl.sum(new * new, 1)
        acc += tl.sum(tl.sum(weight * new[None, :, :], 2), 1)
    tl.store(mixes_ptr + (split * M + token) * MIXES + row, acc)
    if tile == 0:
        tl.store(squares_ptr + split * M + token, tl.sum(squares, 0))
