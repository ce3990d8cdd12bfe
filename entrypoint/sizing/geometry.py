"""KV pages, blocks and the pool that follows from a pin: vLLM's arithmetic, redone from the model's shapes.

A block holds `block` tokens of every MLA and indexer layer of a rank. KDA states live in the same blocks: a
state takes one MLA page, so the block is lifted until it fits. The engine reports the pool as
`blocks / blocks of one longest request x longest request`; so do we.

Layouts
    split   vLLM 0.31 and the nightly the reported numbers were measured on: MLA and indexer regions apart. The
            drafter's pages come on top of each block, or lie in a pool of their own (overlay).
    packed  vLLM 0.32: every group aliases the same block bytes; the drafter costs no bytes per block.
            A prediction from 0.32.0's grouping code; no GLM boot on it has been seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from model import Model

Layout = Literal["split", "packed"]

STATE_BYTES = 4  # recurrent KDA state in fp32
CONV_BYTES = 2  # convolution state in bf16
KEPT_STATES = 2  # prefix caching keeps the running state and the one of the last block boundary
CHECKPOINT_STATES = {"split": 0, "packed": 1}  # 0.32 adds one while FlashKDA exports prefill checkpoints
STEPS_IN_FLIGHT = 2  # asynchronous scheduling: two steps' tokens are held at once
ROW_ALIGNMENT = 512  # packed: a block's stride is a whole number of latent rows
MIN_KERNEL_BLOCK = 128
DRAFT_BLOCK = 256  # block of the drafter's own pool in the builds that report 1.10M, 1.91M, 4.40M and 4.47M


@dataclass(frozen=True)
class Shape:
    """What a pool's geometry depends on beside the model.

    tp             ranks
    block          effective tokens per block (`effective_block`)
    max_len        longest request, tokens
    seqs           requests decoding at once
    batch_tokens   tokens of a step
    kv_bytes       bytes of one cached number: 1 for fp8_e4m3, 2 for bf16
    spec           dflash, mtp or none; spec_tokens drafted a step
    recoverssm     one KDA state per request instead of one per verify position
    drafter_pool   the drafter's pages in a pool of their own (split layout only)
    draft_block    tokens per block of that pool
    pool_counted   True for the first build of that pool, which still counted its blocks against each request
    """

    tp: int
    block: int
    max_len: int
    seqs: int
    batch_tokens: int
    kv_bytes: int = 1
    spec: str = "dflash"
    spec_tokens: int = 7
    layout: Layout = "packed"
    recoverssm: bool = False
    drafter_pool: bool = False
    draft_block: int = DRAFT_BLOCK
    pool_counted: bool = False


@dataclass(frozen=True)
class Pool:
    """A predicted pool of one rank.

    bytes_per_block  of the shared blocks
    blocks           of the shared pool
    per_request      blocks that one request of max_len takes
    state_blocks     of those, the ones that hold KDA states and the indexer's tail
    draft_bytes      the drafter's own pool, 0 without one
    tokens           what the engine's `KV cache size` line should say
    """

    bytes_per_block: int
    blocks: int
    per_request: int
    state_blocks: int
    draft_bytes: int
    tokens: int


def up(value: int, multiple: int) -> int:
    """`value` rounded up to a multiple."""
    return -(-value // multiple) * multiple


def mla_page(model: Model, block: int, kv_bytes: int = 1) -> int:
    """Bytes of one MLA layer in one block."""
    return block * int(model["target.mla.kv_rank"]) * kv_bytes


def indexer_page(model: Model, block: int) -> int:
    """Bytes of one indexer layer in one block."""
    return block // int(model["target.indexer.pool"]) * int(model["target.indexer.entry_bytes"])


def kda_page(model: Model, tp: int, spec_tokens: int) -> int:
    """Bytes of one KDA layer's state of one request: convolution window and recurrent state."""
    kda = model["target.kda"]
    heads, width = model.heads(tp) // tp, kda["width"]
    window = 3 * heads * width * (kda["kernel"] - 1 + spec_tokens)
    return int(window * CONV_BYTES + heads * width * width * STATE_BYTES)


def drafter_page(model: Model, tp: int, block: int, kv_bytes: int = 1) -> int:
    """Bytes of one drafter layer in one block: K and V."""
    _, kv_heads = model.drafter_heads(tp)
    return block * 2 * (kv_heads // tp) * int(model["drafter.width"]) * kv_bytes


def effective_block(model: Model, tp: int, requested: int, spec_tokens: int, kv_bytes: int = 1) -> int:
    """Tokens per block after vLLM lifted it: a KDA state fits one MLA page, and kernels' pages divide it."""
    step = max(requested, MIN_KERNEL_BLOCK)
    state, row = kda_page(model, tp, spec_tokens), mla_page(model, 1, kv_bytes)
    lifted = step * -(-state // (step * row))
    return up(lifted, int(model["target.indexer.pool"] * model["target.indexer.kernel_pool"]))


def pool(model: Model, shape: Shape, pin: int) -> Pool:
    """The pool that `pin` bytes of a rank give."""
    draft_bytes = 0
    mla_layers = int(model["target.layers_mla"])
    mla, index = mla_page(model, shape.block, shape.kv_bytes), indexer_page(model, shape.block)
    per_block = mla_layers * (mla + index)
    drafts = shape.spec == "dflash"
    draft_layers = int(model["drafter.layers"])
    if shape.layout == "packed":
        if drafts:
            per_block = max(per_block, draft_layers * drafter_page(model, shape.tp, shape.block, shape.kv_bytes))
        per_block = up(per_block, ROW_ALIGNMENT)
    elif drafts and shape.drafter_pool:
        draft_bytes = draft_layers * drafter_page(model, shape.tp, shape.draft_block, shape.kv_bytes)
        draft_bytes *= drafter_pool_blocks(model, shape)
    elif drafts:
        per_block += draft_layers * drafter_page(model, shape.tp, shape.block, shape.kv_bytes)

    states = KEPT_STATES + CHECKPOINT_STATES[shape.layout] + (0 if shape.recoverssm else shape.spec_tokens)
    groups = -(-int(model["target.layers_kda"]) // mla_layers)
    state_blocks = groups * states + 1  # and one block for the indexer's tail
    own_pool = shape.layout == "split" and shape.drafter_pool and not shape.pool_counted
    per_request = -(-shape.max_len // shape.block) + state_blocks
    if drafts and not own_pool:
        per_request += drafter_blocks(model, shape)
    blocks = max(0, (pin - draft_bytes) // per_block)
    return Pool(per_block, blocks, per_request, state_blocks, draft_bytes, int(blocks / per_request * shape.max_len))


def drafter_blocks(model: Model, shape: Shape) -> int:
    """Shared blocks one request's drafter window takes: the window, what is in flight, one for the start."""
    held = int(model["drafter.window"]) - 1 + STEPS_IN_FLIGHT * shape.batch_tokens
    return -(-min(held, shape.max_len) // shape.block) + 1


def drafter_pool_blocks(model: Model, shape: Shape) -> int:
    """Blocks of the drafter's own pool: a window and two for each request, a step's tokens, one spare."""
    window, block = int(model["drafter.window"]), shape.draft_block
    return shape.seqs * (-(-window // block) + 2) + -(-shape.batch_tokens // block) + 1


def pin_for(model: Model, shape: Shape, requests: float = 1.0) -> int:
    """Bytes of the smallest pin whose pool holds `requests` requests of max_len."""
    empty = pool(model, shape, 0)
    blocks = -int(-requests * empty.per_request // 1)
    return empty.draft_bytes + blocks * empty.bytes_per_block
