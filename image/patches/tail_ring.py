"""The ring of raw keys behind the kpool indexer: four slots are too few once tokens are drafted."""

from __future__ import annotations

from image.patches.expect import RECIPE, fixed, needed
from image.patching import Edit, Patch, Variant, Witness

OPS = "vllm/models/glm5next/nvidia/ops/kpool_compress.py"
ATTENTION = "vllm/models/glm5next/nvidia/attention.py"
SEED = "_kpool_tail_seed_kernel"
UPDATE = "_kpool_decode_update_batched_kernel"
WRAPPER = "kpool_decode_update_and_maybe_write_cache_batched"


def _ring_slot(before: str, after: str) -> Edit:
    """The two pool loops hold the same line; the line before tells them apart."""
    line = "                phys = (pool_logical_start + pool_slot) % {}\n"
    return Edit(OPS, UPDATE, before + line.format("POOL_SIZE") + after, before + line.format("RING") + after)


_LOOP = "            for pool_slot in tl.static_range(0, POOL_SIZE):\n                is_current = pool_slot == slot\n"

PATCH = Patch(
    name="kpool-tail-ring",
    title="a tail ring that outlasts rejected drafts",
    why="drafts behind a rejected one overwrite keys that its redo reads (reported: 106 of 128 key bytes wrong)",
    upstream="vllm#58454, in 0.31.0",
    origin=RECIPE,
    variants=(
        Variant(
            "0.30.0",
            (
                Edit(
                    ATTENTION,
                    "Glm5NextTailCache.get_kv_cache_spec",
                    "        return KpoolTailSpec(\n            block_size=self._index_kpool,\n",
                    "        # glm53: whole pools, a power of two of them, enough for one pool and all drafts\n"
                    "        span = self._index_kpool + vllm_config.num_speculative_tokens\n"
                    "        pools = -(-span // self._index_kpool)\n"
                    "        ring = self._index_kpool << (pools - 1).bit_length()\n"
                    "        assert self.cache_config.block_size % ring == 0, (self.cache_config.block_size, ring)\n"
                    "        return KpoolTailSpec(\n"
                    "            block_size=ring,\n",
                ),
                Edit(
                    ATTENTION,
                    "Glm5NextTailCache.get_kv_cache_spec",
                    "            sliding_window=self._index_kpool,\n",
                    "            sliding_window=ring,\n",
                ),
                # Seeding: the block from the ring, addresses from the strides of the (padded) cache.
                Edit(
                    OPS,
                    SEED,
                    "    n_tokens,\n    HEAD_DIM: tl.constexpr,\n",
                    "    n_tokens,\n"
                    "    RING: tl.constexpr,\n"
                    "    TAIL_BLOCK: tl.constexpr,\n"
                    "    TAIL_HALF: tl.constexpr,\n"
                    "    HEAD_DIM: tl.constexpr,\n",
                ),
                Edit(
                    OPS,
                    SEED,
                    "    blk = t // KPOOL  # t >= 0 here, so trunc == floor\n",
                    "    blk = t // RING  # glm53: t >= 0 here, so trunc == floor\n",
                ),
                Edit(
                    OPS,
                    SEED,
                    "    if ahead >= 0 and ahead // KPOOL == blk:\n",
                    "    if ahead >= 0 and ahead // RING == blk:\n",
                ),
                Edit(
                    OPS,
                    SEED,
                    "    base = (blk * 2 * KPOOL + t % KPOOL) * HEAD_DIM\n",
                    "    base = blk * TAIL_BLOCK + (t % RING) * HEAD_DIM\n",
                ),
                Edit(
                    OPS,
                    SEED,
                    "    tl.store(tail_ptr + base + KPOOL * HEAD_DIM + offs, s, mask=m)\n",
                    "    tl.store(tail_ptr + base + TAIL_HALF + offs, s, mask=m)\n",
                ),
                Edit(
                    OPS,
                    "kpool_seed_tail_cache",
                    "        n,\n        HEAD_DIM=head_dim,\n",
                    "        n,\n"
                    "        RING=tail_kv_cache.shape[2],\n"
                    "        TAIL_BLOCK=tail_kv_cache.stride(0),\n"
                    "        TAIL_HALF=tail_kv_cache.stride(1),\n"
                    "        HEAD_DIM=head_dim,\n",
                ),
                # Decoding: slots and blocks by the ring, pools still by POOL_SIZE.
                Edit(
                    OPS,
                    UPDATE,
                    "    POOL_SIZE: tl.constexpr,\n    TAIL_BLOCK_ELEMS: tl.constexpr,\n",
                    "    POOL_SIZE: tl.constexpr,\n    RING: tl.constexpr,\n    TAIL_BLOCK_ELEMS: tl.constexpr,\n",
                ),
                Edit(
                    OPS,
                    UPDATE,
                    "        phys_slot = safe_pos % POOL_SIZE\n",
                    "        phys_slot = safe_pos % RING\n",
                ),
                Edit(
                    OPS,
                    UPDATE,
                    "        block = tl.maximum(tail_slot, 0).to(tl.int64) // POOL_SIZE\n",
                    "        block = tl.maximum(tail_slot, 0).to(tl.int64) // RING\n",
                ),
                _ring_slot(
                    '            max_score = tl.full((BLOCK_D,), -float("inf"), tl.float32)\n' + _LOOP,
                    "",
                ),
                _ring_slot(
                    "            denom = tl.full((BLOCK_D,), 0.0, tl.float32)\n" + _LOOP,
                    "",
                ),
                Edit(
                    OPS,
                    WRAPPER,
                    "    assert tail_kv_cache.shape[2] == pool_size\n",
                    "    assert tail_kv_cache.shape[2] % pool_size == 0\n",
                ),
                Edit(
                    OPS,
                    WRAPPER,
                    "        POOL_SIZE=pool_size,\n        TAIL_BLOCK_ELEMS=tail_kv_cache.stride(0),\n",
                    "        POOL_SIZE=pool_size,\n"
                    "        RING=tail_kv_cache.shape[2],\n"
                    "        TAIL_BLOCK_ELEMS=tail_kv_cache.stride(0),\n",
                ),
            ),
        ),
    ),
    fixed=(Witness(OPS, UPDATE, "        phys_slot = safe_pos % RING\n"),),
    expected={**needed("0.30.0"), **fixed("0.31.0", "0.32.0", "0.33.0")},
)
