"""A mixture of NVFP4 experts for few tokens, 16-bit activations, on the tensors the CUTLASS backend keeps.

Two kernels. `first` takes each touched expert once, whoever of the pairs (token, choice) comes first does the work
for all of them: up and gate rows, clamped SwiGLU, routing weight, fp16. It also lists the touched experts by ascending
id. `second` takes rows of the output and walks that list: each row's sum over experts has one order. Both walk K in
steps shared by their warps, which meet once, in warp order. Scales sit at
((r//128) * (C//4) + c//4) * 512 + (r%32) * 16 + (r//32 % 4) * 4 + c%4: a program takes rows 32 apart, near there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from experimental.nvfp4.kernel import accumulate, let_next_start, scattered, wait_for_previous


@triton.jit
def _scale_offset(row, q, K):
    """int16 index of the scale pair of a lane (row, q) at k = 0; 64 k further is 256 int16 further."""
    return ((row // 128) * (K // 64) + q // 2) * 256 + (row % 32) * 8 + ((row // 32) % 4) * 2 + q % 2


@triton.jit
def _rows(tile, R: tl.constexpr):
    """Rows of a program's tile [1, R, 1, 8, 1]: R groups of 8, 32 apart."""
    r = tl.arange(0, R)[None, :, None, None, None]
    g = tl.arange(0, 8)[None, None, None, :, None]
    return (tile // 4) * (32 * R) + r * 32 + (tile % 4) * 8 + g


@triton.jit
def _up_and_gate(
    w_at,
    s_at,
    x_ptr,
    slots,
    count,
    K: tl.constexpr,
    TOPK: tl.constexpr,
    WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    FAST: tl.constexpr,
):
    """[8 R, 8 TILES] unscaled products of a program's rows with the tokens of `slots` (pair numbers)."""
    STEP: tl.constexpr = 128 * WARPS
    piece = tl.arange(0, 4)[:, None, None, None, None, None]
    warp = tl.arange(0, WARPS)[None, None, :, None, None, None]
    q = tl.arange(0, 4)[None, None, None, None, :, None]
    token = tl.reshape(slots // TOPK, [1, TILES, 1, 8, 1, 1])
    there = tl.reshape(tl.arange(0, TILES * 8), [1, TILES, 1, 8, 1, 1]) < count
    k = warp * 128 + q * 32 + piece * 8
    x_at = x_ptr + token * K + k + tl.arange(0, 8)[None, None, None, None, None, :]
    at = tl.arange(0, WARPS)[None, None, :, None, None] * 128
    acc = tl.zeros([WARPS, R * 8, TILES * 8], tl.float32)
    words = tl.load(w_at, mask=at < K, other=0, eviction_policy="evict_first")
    pairs = tl.load(s_at, mask=at < K, other=0)
    tokens = tl.load(x_at, mask=there & (k < K), other=0.0)
    for step in range(STEP, K, STEP):
        inside = at + step < K
        next_words = tl.load(w_at + step // 4, mask=inside, other=0, eviction_policy="evict_first")
        next_pairs = tl.load(s_at + step * 4, mask=inside, other=0)
        next_tokens = tl.load(x_at + step, mask=there & (k + step < K), other=0.0)
        acc = accumulate(acc, words, pairs, tokens, 1, R, TILES, WARPS, False, FAST)
        words = next_words
        pairs = next_pairs
        tokens = next_tokens
    acc = accumulate(acc, words, pairs, tokens, 1, R, TILES, WARPS, False, FAST)
    return tl.sum(acc, 0)


@triton.jit
def _swiglu(
    product,
    slots,
    count,
    up_ptr,
    gate_ptr,
    weight_ptr,
    hidden_ptr,
    expert,
    tile,
    limit,
    scaling,
    I,  # noqa: E741
    R: tl.constexpr,
    TILES: tl.constexpr,
):
    """hidden[pair, I] = silu(min(gate, limit)) * clamp(up, limit) * weight * scaling, for the pairs of `slots`."""
    HALF_ROWS: tl.constexpr = R * 4
    both = tl.permute(tl.reshape(product, [2, HALF_ROWS, TILES * 8]), [1, 2, 0])
    up, gate = tl.split(both)
    up = up * (tl.load(up_ptr + expert) * 16384.0)
    gate = gate * (tl.load(gate_ptr + expert) * 16384.0)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    gate = tl.minimum(gate, limit)
    there = tl.arange(0, TILES * 8) < count
    weight = tl.load(weight_ptr + slots, mask=there, other=0.0) * scaling
    hidden = gate / (1.0 + tl.exp(-gate)) * up * weight[None, :]
    local = tl.arange(0, HALF_ROWS)
    row = (tile // 4) * (16 * R) + (local // 8) * 32 + (tile % 4) * 8 + local % 8
    at = hidden_ptr + slots[None, :] * I + row[:, None]
    tl.store(at, hidden.to(hidden_ptr.dtype.element_ty), mask=there[None, :])


@triton.jit
def _expert(
    w_at,
    s_at,
    x_ptr,
    mine,
    index,
    rank,
    count,
    up_ptr,
    gate_ptr,
    weight_ptr,
    hidden_ptr,
    expert,
    tile,
    limit,
    scaling,
    K: tl.constexpr,
    I,  # noqa: E741
    TOPK: tl.constexpr,
    WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    FAST: tl.constexpr,
):
    """One program's rows of one expert, for the pairs `index[mine]`, of which there are `count` <= 8 TILES."""
    slot = tl.arange(0, TILES * 8)
    slots = tl.sum(tl.where(mine[None, :] & (rank[None, :] == slot[:, None]), index[None, :], 0), 1)
    product = _up_and_gate(w_at, s_at, x_ptr, slots, count, K, TOPK, WARPS, R, TILES, FAST)
    _swiglu(product, slots, count, up_ptr, gate_ptr, weight_ptr, hidden_ptr, expert, tile, limit, scaling, I, R, TILES)


@triton.jit
def moe_first(
    x_ptr,
    ids_ptr,
    weight_ptr,
    w13_ptr,
    s13_ptr,
    up_ptr,
    gate_ptr,
    hidden_ptr,
    experts_ptr,
    where_ptr,
    count_ptr,
    M,
    limit,
    scaling,
    K: tl.constexpr,
    I,  # noqa: E741
    TOPK: tl.constexpr,
    PAIRS: tl.constexpr,
    WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Grid (1 + I / (4 R), M * TOPK); column 0 lists the experts, the others take 4 R up rows and their gate rows.

    x bf16 [M, K]; ids int32, weight fp32 [M, TOPK]; w13 int16 [E, 2 I, K/4] (up rows, then gate rows); s13 int16
    swizzled; up, gate fp32 [E]: the globals. Out: hidden fp16 [M * TOPK, I]; experts int32 [M * TOPK]; where int32
    [M * TOPK, 8 TILES] (the pair of a token in the listed expert, or -1); count int32 [1]. PAIRS is a power of two
    of at least M * TOPK.
    """
    wait_for_previous(OVERLAP, FAST)
    let_next_start(OVERLAP, FAST)
    pair = tl.program_id(1)
    expert = tl.load(ids_ptr + pair)
    index = tl.arange(0, PAIRS)
    ids = tl.load(ids_ptr + index, mask=index < M * TOPK, other=-1)
    mine = (ids == expert) & (expert >= 0)
    first = tl.min(tl.where(mine, index, PAIRS), 0)
    if tl.program_id(0) == 0:
        # A pair leads when none before it has its expert; ranks count the leaders with a smaller id.
        leads = ids >= 0
        for other in range(0, M * TOPK):
            leads = leads & ((ids != tl.load(ids_ptr + other)) | (index <= other))
        if pair == 0:
            tl.store(count_ptr, tl.sum(leads.to(tl.int32), 0))
        if first == pair:
            rank = tl.sum((leads & (ids < expert)).to(tl.int32), 0)
            tl.store(experts_ptr + rank, expert)
            token = tl.arange(0, TILES * 8)
            found = tl.full([TILES * 8], -1, tl.int32)
            for choice in range(0, TOPK):
                at = token * TOPK + choice
                found = tl.where(tl.load(ids_ptr + at, mask=token < M, other=-1) == expert, at, found)
            tl.store(where_ptr + rank * (TILES * 8) + token, found)
    elif first == pair:
        tile = tl.program_id(0) - 1
        r = tl.arange(0, R)[None, :, None, None, None]
        g = tl.arange(0, 8)[None, None, None, :, None]
        row = (r // (R // 2)) * I + (tile // 4) * (16 * R) + (r % (R // 2)) * 32 + (tile % 4) * 8 + g
        at = tl.arange(0, WARPS)[None, None, :, None, None] * 128
        q = tl.arange(0, 4)[None, None, None, None, :]
        expert64 = expert.to(tl.int64)
        w_at = w13_ptr + expert64 * (2 * I * (K // 4)) + row * (K // 4) + at // 4
        w_at += tl.arange(0, 32)[None, None, None, None, :]
        s_at = (
            s13_ptr
            + expert64 * ((2 * I + 127) // 128 * 128 * (K // 32))
            + _scale_offset(row, scattered(q, M), K)
            + at * 4
        )
        rank = tl.cumsum(mine.to(tl.int32), 0) - 1
        count = tl.sum(mine.to(tl.int32), 0)
        # Most experts have few tokens; a branch spares them the tiles of the largest possible count.
        if count <= 8 or TILES == 1:
            _expert(
                w_at, s_at, x_ptr, mine, index, rank, count, up_ptr, gate_ptr, weight_ptr, hidden_ptr, expert, tile,
                limit, scaling, K, I, TOPK, WARPS, R, 1, FAST,
            )  # fmt: skip
        else:
            _expert(
                w_at, s_at, x_ptr, mine, index, rank, count, up_ptr, gate_ptr, weight_ptr, hidden_ptr, expert, tile,
                limit, scaling, K, I, TOPK, WARPS, R, TILES, FAST,
            )  # fmt: skip


@triton.jit
def moe_second(
    hidden_ptr,
    experts_ptr,
    where_ptr,
    count_ptr,
    w2_ptr,
    s2_ptr,
    down_ptr,
    out_ptr,
    M,
    H,
    I,  # noqa: E741
    WORDS,
    K_WARPS: tl.constexpr,
    E_WARPS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Grid (H / (8 R),). w2 int16 [E, H, WORDS = I/4], s2 int16 swizzled, down fp32 [E]; out bf16 or fp32 [M, H].

    Warps share I (K_WARPS) and the list of experts (E_WARPS: expert number n goes to n % E_WARPS).
    """
    WARPS: tl.constexpr = K_WARPS * E_WARPS
    STEP: tl.constexpr = 128 * K_WARPS
    steps = (I + STEP - 1) // STEP
    let_next_start(OVERLAP, FAST)
    warp = tl.arange(0, WARPS)[None, None, :, None, None]
    q = tl.arange(0, 4)[None, None, None, None, :]
    row = _rows(tl.program_id(0), R)
    at = (warp // E_WARPS) * 128
    w_at = w2_ptr + row * WORDS + at // 4 + tl.arange(0, 32)[None, None, None, None, :]
    s_at = s2_ptr + _scale_offset(row, scattered(q, M), I) + at * 4
    w_expert = H.to(tl.int64) * WORDS
    s_expert = ((H + 127) // 128 * 128).to(tl.int64) * (WORDS // 8)

    piece = tl.arange(0, 4)[:, None, None, None, None, None]
    warp6 = tl.arange(0, WARPS)[None, None, :, None, None, None]
    q6 = tl.arange(0, 4)[None, None, None, None, :, None]
    tile = tl.arange(0, TILES)[None, :, None, None, None, None]
    token = tile * 8 + tl.arange(0, 8)[None, None, None, :, None, None]
    k = (warp6 // E_WARPS) * 128 + q6 * 32 + piece * 8
    h_at = hidden_ptr + k + tl.arange(0, 8)[None, None, None, None, None, :]
    acc = tl.zeros([WARPS, R * 8, TILES * 8], tl.float32)

    wait_for_previous(OVERLAP, FAST)
    count = tl.load(count_ptr)
    mine = warp % E_WARPS
    mine6 = warp6 % E_WARPS
    expert = tl.load(experts_ptr + mine, mask=mine < count, other=0).to(tl.int64)
    inside = (mine < count) & (at < I)
    words = tl.load(w_at + expert * w_expert, mask=inside, other=0, eviction_policy="evict_first")
    pairs = tl.load(s_at + expert * s_expert, mask=inside, other=0)
    pair = tl.load(where_ptr + mine6 * (TILES * 8) + token, mask=mine6 < count, other=-1)
    tokens = tl.load(h_at + pair * I, mask=(pair >= 0) & (k < I), other=0.0)
    turns = (count + E_WARPS - 1) // E_WARPS * steps
    for turn in range(0, turns):
        scale = tl.load(down_ptr + expert)
        next_n = (turn + 1) // steps * E_WARPS
        next_step = (turn + 1) % steps * STEP
        there = (next_n + mine) < count
        next_expert = tl.load(experts_ptr + next_n + mine, mask=there, other=0).to(tl.int64)
        inside = there & (at + next_step < I)
        next_words = tl.load(
            w_at + next_expert * w_expert + next_step // 4, mask=inside, other=0, eviction_policy="evict_first"
        )
        next_pairs = tl.load(s_at + next_expert * s_expert + next_step * 4, mask=inside, other=0)
        pair = tl.load(where_ptr + (next_n + mine6) * (TILES * 8) + token, mask=(next_n + mine6) < count, other=-1)
        next_tokens = tl.load(h_at + pair * I + next_step, mask=(pair >= 0) & (k + next_step < I), other=0.0)
        part = accumulate(
            tl.zeros([WARPS, R * 8, TILES * 8], tl.float32), words, pairs, tokens, 1, R, TILES, WARPS, True, FAST
        )
        acc += part * tl.reshape(scale, [WARPS, 1, 1])
        expert = next_expert
        words = next_words
        pairs = next_pairs
        tokens = next_tokens
    out = tl.sum(acc, 0) * 128.0
    local = tl.arange(0, R * 8)
    tile_id = tl.program_id(0)
    n_row = (tile_id // 4) * (32 * R) + (local // 8) * 32 + (tile_id % 4) * 8 + local % 8
    m = tl.arange(0, TILES * 8)[None, :]
    tl.store(out_ptr + m * H + n_row[:, None], out.to(out_ptr.dtype.element_ty), mask=m < M)
