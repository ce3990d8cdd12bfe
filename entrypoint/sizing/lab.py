"""Sizing of the lab: a tiny Llama on CPU whose pool is predicted exactly, so that the arithmetic is seen to hold."""

from __future__ import annotations

from typing import Any

from core.units import GIB
from entrypoint.sizing.geometry import Pool
from model import Model

TINY = "the lab's tiny model on CPU"
VALUES: dict[str, tuple[Any, str]] = {
    "KV_CACHE_MEMORY": (GIB, TINY),
    "MAX_MODEL_LEN": (1024, TINY),
    "MAX_NUM_SEQS": (8, TINY),
    "MAX_NUM_BATCHED_TOKENS": (1024, TINY),
    "GPU_MEM_UTIL": (0.2, "on CPU the share of host memory that start-up wants to see free"),
    "CUDA_GRAPHS": (False, "no GPU"),
}


def pool(model: Model, tp: int, pin: int, max_len: int, *, padded: bool = False) -> Pool:
    """The pool of the tiny model: K and V of every layer, nothing else. The CPU engine takes whole GiB only.

    `padded` is the lab's other model, whose heads `./glm53 pad` made divide by `tp`.
    """
    pin = max(1, pin // GIB) * GIB
    facts = model["lab"]
    heads = -(-facts["padded_from"] // tp) * tp if padded else facts["kv_heads"]
    per_layer = facts["block"] * 2 * (heads // tp) * facts["width"] * facts["bytes"]
    per_block = int(facts["layers"] * per_layer)
    blocks = pin // per_block
    per_request = -(-max_len // int(facts["block"]))
    return Pool(per_block, blocks, per_request, 0, 0, int(blocks / per_request * max_len))
