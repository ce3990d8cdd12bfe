"""The tuned start values per TP size, as reported by the people who run them on real GB10 boxes.

None is measured by us. Sizing starts from here and shrinks what does not fit (entrypoint/sizing/sizing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.units import GIB
from model import Dense


@dataclass(frozen=True)
class Tuned:
    """Start values of one TP size.

    kv_bytes        KV pool of a rank, latency profile; sizes in bytes
    max_len         longest request, tokens
    seqs            requests decoding at once with RecoverSSM
    seqs_stock      the same without: every verify position then holds a KDA state
    seqs_pool       without RecoverSSM but with the drafter's KV in its own pool
    batch_tokens    tokens of one scheduler step
    block           tokens per KV block as requested; vLLM may lift it
    adaptive        ms, ms per expert, ms per token of adaptive-k's cost model, with RecoverSSM
    adaptive_stock  the same without
    """

    kv_bytes: int
    max_len: int
    seqs: int
    seqs_stock: int
    seqs_pool: int
    batch_tokens: int
    block: int
    adaptive: str
    adaptive_stock: str


GB10: Mapping[int, Tuned] = {
    2: Tuned(8 * GIB, 163840, 16, 4, 4, 8192, 2304, "32.1,1.32,0.427", "35.0,1.27,0.8"),
    3: Tuned(12 * GIB, 524288, 64, 32, 32, 16384, 3456, "27.5,0.795,0.50", "27.5,0.795,0.50"),
    4: Tuned(26 * GIB, 524288, 64, 32, 50, 16384, 2304, "26.4,0.660,0.484", "27.0,0.635,0.542"),
    6: Tuned(26 * GIB, 524288, 64, 32, 32, 16384, 1792, "19.3,0.50,0.40", "19.3,0.50,0.40"),
}


@dataclass(frozen=True)
class Lost:
    """A configuration reported to have lost a box; what is at least as large is not better. Sizes in bytes."""

    tp: int
    kv_bytes: int
    batch_tokens: int
    what: str


LOST = (
    Lost(4, 28 * GIB, 1, "28 GiB at TP=4 lost a worker under eight long requests"),
    Lost(3, 26 * GIB, 1, "26 GiB at TP=3 lost rank 0 in graph capture"),
    Lost(2, 8 * GIB, 16384, "8 GiB with 16384 tokens a step at TP=2 lost a worker in prefill"),
)
# Those boxes had 121.6 GiB; a report says nothing about a box that is clearly larger.
LOST_ON = 124 * GIB

# The original caps one prompt's share of a step at this; ours is the nearest multiple of the effective block.
ORIGINAL_PREFILL_CAP = 2304
# What the throughput profile does beside more sequences: the pool drops toward this where it is larger,
# and a prompt may take this many times the latency profile's share of a step.
THROUGHPUT_KV_BYTES = 20 * GIB
THROUGHPUT_SEQS = 2
THROUGHPUT_PREFILL = 2
# vLLM captures no CUDA graph beyond this many tokens here.
GRAPH_CEILING = 512
# Names of the overlays that change the numbers.
RECOVERSSM = "recoverssm"
DRAFTER_POOL = ("drafter_pool", "drafter-pool", "fixes")
# What overlays make of the dense layers (model.weights), the one that decides first; `fp8` is the original's, which
# does both. dense_w4 needs dense_fp8.
DENSE: tuple[tuple[str, Dense], ...] = (("dense_w4", "w4"), ("fp8", "w4"), ("dense_fp8", "fp8"))
