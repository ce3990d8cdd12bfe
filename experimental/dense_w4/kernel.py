"""Weight-only NVFP4 product: out[M, N] = x[M, K] @ dequantised(w)[N, K].T, for M up to 64.

One program takes 8 * R * ROW_WARPS rows of w. Its other warps share K in steps of 128 * CHUNKS, add up in their own
accumulators and meet once at the end, in warp order: the sum has one order for a given (K, warps, CHUNKS), whatever M
and N are. The first weights are asked for before the previous kernel of the stream has ended; the tokens after.

In every 128 of k the weights' groups of 16 lie in the order 0 4 1 5 2 6 3 7 (`launch.arrange`): lane q of four has
groups q and q + 4, so what the lanes ask of a token is 128 bytes in a row, where memory order would spread it over 256.
"""

from __future__ import annotations

import triton
import triton.language as tl

from experimental.nvfp4.kernel import accumulate, let_next_start, scattered, wait_for_previous


@triton.jit
def dense_w4(
    w_ptr,
    s_ptr,
    x_ptr,
    out_ptr,
    alpha_ptr,
    M,
    N,
    K,
    WORDS,
    K_WARPS: tl.constexpr,
    ROW_WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    OVERLAP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Grid (N / (8 R ROW_WARPS),). w int16 [N, WORDS = K / 4], s int16 [N, K / 32] (two e4m3), x bf16 [M, K].

    alpha is the tensor's global times 2^14; out bf16 or fp32 [M, N]. Rows of w are a multiple of the program's; `N` are
    stored.
    """
    WARPS: tl.constexpr = K_WARPS * ROW_WARPS
    STEP: tl.constexpr = 128 * CHUNKS * K_WARPS
    let_next_start(OVERLAP, FAST)
    u = tl.arange(0, CHUNKS)[:, None, None, None, None]
    r = tl.arange(0, R)[None, :, None, None, None]
    warp = tl.arange(0, WARPS)[None, None, :, None, None]
    g = tl.arange(0, 8)[None, None, None, :, None]
    row = ((tl.program_id(0) * ROW_WARPS + warp % ROW_WARPS) * R + r) * 8 + g
    at = u * 128 + (warp // ROW_WARPS) * (128 * CHUNKS)
    w_at = w_ptr + row * WORDS + at // 4 + tl.arange(0, 32)[None, None, None, None, :]
    s_at = s_ptr + row * (WORDS // 8) + at // 32 + scattered(tl.arange(0, 4), M)[None, None, None, None, :]

    piece = tl.arange(0, 4 * CHUNKS)[:, None, None, None, None, None]
    tile = tl.arange(0, TILES)[None, :, None, None, None, None]
    warp6 = tl.arange(0, WARPS)[None, None, :, None, None, None]
    token = tile * 8 + tl.arange(0, 8)[None, None, None, :, None, None]
    q = tl.arange(0, 4)[None, None, None, None, :, None]
    k = (warp6 // ROW_WARPS) * (128 * CHUNKS) + (piece // 4) * 128
    k += (piece % 4 // 2) * 64 + q * 16 + (piece % 2) * 8
    x_at = x_ptr + token * K + k + tl.arange(0, 8)[None, None, None, None, None, :]
    there = token < M

    acc = tl.zeros([WARPS, R * 8, TILES * 8], tl.float32)
    words = tl.load(w_at, mask=at < K, other=0, eviction_policy="evict_first")
    pairs = tl.load(s_at, mask=at < K, other=0)
    wait_for_previous(OVERLAP, FAST)
    tokens = tl.load(x_at, mask=there & (k < K), other=0.0)
    for step in range(STEP, K, STEP):
        # The next step's data is under way while this one is multiplied.
        inside = at + step < K
        next_words = tl.load(w_at + step // 4, mask=inside, other=0, eviction_policy="evict_first")
        next_pairs = tl.load(s_at + step // 32, mask=inside, other=0)
        next_tokens = tl.load(x_at + step, mask=there & (k + step < K), other=0.0)
        acc = accumulate(acc, words, pairs, tokens, CHUNKS, R, TILES, WARPS, False, FAST)
        words = next_words
        pairs = next_pairs
        tokens = next_tokens
    acc = accumulate(acc, words, pairs, tokens, CHUNKS, R, TILES, WARPS, False, FAST)

    out = tl.sum(tl.reshape(acc, [K_WARPS, ROW_WARPS * R * 8, TILES * 8]), 0) * tl.load(alpha_ptr)
    n = tl.program_id(0) * (ROW_WARPS * R * 8) + tl.arange(0, ROW_WARPS * R * 8)[:, None]
    m = tl.arange(0, TILES * 8)[None, :]
    tl.store(out_ptr + m * N + n, out.to(out_ptr.dtype.element_ty), mask=(m < M) & (n < N))
