"""FP8 product out[M, N] = (x8[M, K] * x_scale[M]) @ (w8[N, K] * w_scale[N]).T, M up to 64, and the token quantiser.

As in experimental/nvfp4/kernel.py a 16-byte load a lane is already a tensor-core operand: lane q of a row holds 16 of
64 values of k, four words of four. Warps share K in steps of 64 * CHUNKS and meet once, in warp order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from experimental.nvfp4.kernel import let_next_start, wait_for_previous


@triton.jit
def _operand(bytes_, CHUNKS: tl.constexpr, GROUPS: tl.constexpr, WARPS: tl.constexpr, FAST: tl.constexpr):
    """Bytes [CHUNKS, GROUPS, WARPS, 8, 64] to e4m3 [WARPS, 8 GROUPS, 64 CHUNKS]; fp32 under the interpreter."""
    values = bytes_.to(tl.float8e4nv, bitcast=True)
    if not FAST:
        values = values.to(tl.float32)
    values = tl.reshape(values, [CHUNKS, GROUPS, WARPS, 8, 4, 4, 4])
    values = tl.permute(values, [2, 1, 3, 0, 5, 4, 6])
    return tl.reshape(values, [WARPS, GROUPS * 8, 64 * CHUNKS])


@triton.jit
def dense_fp8(
    w_ptr,
    w_scale_ptr,
    x_ptr,
    x_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    K_WARPS: tl.constexpr,
    ROW_WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    OVERLAP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Grid (N / (8 R ROW_WARPS),). w uint8 [>= N, K], w_scale fp32 [>= N], x uint8 [M, K], x_scale fp32 [M].

    Rows of w are a multiple of the program's; out is bf16 or fp32 [M, N].
    """
    WARPS: tl.constexpr = K_WARPS * ROW_WARPS
    STEP: tl.constexpr = 64 * CHUNKS * K_WARPS
    let_next_start(OVERLAP, FAST)
    u = tl.arange(0, CHUNKS)[:, None, None, None, None]
    r = tl.arange(0, R)[None, :, None, None, None]
    tile = tl.arange(0, TILES)[None, :, None, None, None]
    warp = tl.arange(0, WARPS)[None, None, :, None, None]
    g = tl.arange(0, 8)[None, None, None, :, None]
    row = ((tl.program_id(0) * ROW_WARPS + warp % ROW_WARPS) * R + r) * 8 + g
    token = tile * 8 + g
    at = u * 64 + (warp // ROW_WARPS) * (64 * CHUNKS)
    w_at = w_ptr + row * K + at + tl.arange(0, 64)[None, None, None, None, :]
    x_at = x_ptr + token * K + at + tl.arange(0, 64)[None, None, None, None, :]

    acc = tl.zeros([WARPS, R * 8, TILES * 8], tl.float32)
    weights = tl.load(w_at, mask=at < K, other=0, eviction_policy="evict_first")
    wait_for_previous(OVERLAP, FAST)
    tokens = tl.load(x_at, mask=(token < M) & (at < K), other=0)
    for step in range(STEP, K, STEP):
        next_weights = tl.load(w_at + step, mask=at + step < K, other=0, eviction_policy="evict_first")
        next_tokens = tl.load(x_at + step, mask=(token < M) & (at + step < K), other=0)
        acc = tl.dot(
            _operand(weights, CHUNKS, R, WARPS, FAST),
            tl.permute(_operand(tokens, CHUNKS, TILES, WARPS, FAST), [0, 2, 1]),
            acc,
        )
        weights = next_weights
        tokens = next_tokens
    b = tl.permute(_operand(tokens, CHUNKS, TILES, WARPS, FAST), [0, 2, 1])
    acc = tl.dot(_operand(weights, CHUNKS, R, WARPS, FAST), b, acc)

    out = tl.sum(tl.reshape(acc, [K_WARPS, ROW_WARPS * R * 8, TILES * 8]), 0)
    n = tl.program_id(0) * (ROW_WARPS * R * 8) + tl.arange(0, ROW_WARPS * R * 8)[:, None]
    m = tl.arange(0, TILES * 8)[None, :]
    out = out * tl.load(w_scale_ptr + n, mask=n < N, other=0.0) * tl.load(x_scale_ptr + m, mask=m < M, other=0.0)
    tl.store(out_ptr + m * N + n, out.to(out_ptr.dtype.element_ty), mask=(m < M) & (n < N))


@triton.jit
def quantise_tokens(x_ptr, out_ptr, scale_ptr, K, WIDTH: tl.constexpr, OVERLAP: tl.constexpr, FAST: tl.constexpr):
    """Grid (M,). out e4m3 [M, K] = x / scale, scale fp32 [M] = amax / 448 (1 for zeros). WIDTH >= K, a power of 2."""
    wait_for_previous(OVERLAP, FAST)
    let_next_start(OVERLAP, FAST)
    k = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + tl.program_id(0) * K + k, mask=k < K, other=0.0).to(tl.float32)
    amax = tl.max(tl.abs(x), 0)
    scale = tl.where(amax > 0, tl.div_rn(amax, 448.0), 1.0)
    tl.store(scale_ptr + tl.program_id(0), scale)
    tl.store(out_ptr + tl.program_id(0) * K + k, tl.div_rn(x, scale).to(out_ptr.dtype.element_ty), mask=k < K)
