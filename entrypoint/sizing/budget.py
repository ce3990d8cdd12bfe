"""The memory budget of one rank, item by item; it closes to the box's MemTotal.

On GB10 the CPU and the GPU share memory: an engine that takes too much takes the box with it, so everything
is counted here, the host's own part too. Where a figure comes from stands beside it:

    shapes    arithmetic over model.toml
    reported  stated by people with real boxes (shared facts; not measured by us)
    fitted    one constant for all TP sizes, chosen so that the configurations reported to serve fit (1.5 to 3 GiB
              were left free at TP=4) and those reported to be killed by the OOM killer do not

The fitted constants are the weak part of the budget: six reported outcomes, all with the dense layers converted, hold
four of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.units import GIB, KIB, MIB
from entrypoint.sizing.geometry import Pool, Shape
from model import Model, Part

Role = Literal["head", "worker"]
ROLES: tuple[Role, ...] = ("head", "worker")

# One captured token of the CUDA graphs, with the buffers that graphs keep (fitted).
GRAPH_TOKEN = MIB
# One token of a step on its way through a layer: four residual streams, routed experts, attention (fitted; the
# sum over a layer's tensors gives 150 to 300 KiB).
ACTIVATION_TOKEN = 250 * KIB
# What grows with long prompts: the indexer scores every pool entry for every prompt token of a step in fp32, with
# candidates, sort scratch and what the allocator does not give back. So many such tensors are counted (fitted).
SCORE_TENSORS = 4.1
SCORE_BYTES = 4
# Processes: reported 5.6 GiB on the host side of a head; a worker lacks the API server and the engine core.
PROCESSES: Mapping[Role, int] = {"head": round(5.6 * GIB), "worker": round(4.1 * GIB)}
RDMA_NCCL = GIB  # NCCL with 8 channels, registered buffers; the RoCE overlays' slots are 5 x 132 MiB
CONTEXT = round(3.1 * GIB)  # CUDA context, libraries' workspaces, sampler (fitted)
HOST_FLOOR = 3 * GIB  # system, driver, page tables (fitted)


@dataclass(frozen=True)
class Item:
    """A line of the budget: `size` in bytes, `source` one of shapes, reported, fitted."""

    name: str
    size: int
    source: str
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """The items of one role; with `left` (negative when it does not fit) they sum to `total`."""

    role: Role
    total: int
    items: tuple[Item, ...]

    @property
    def used(self) -> int:
        """Bytes of all items."""
        return sum(item.size for item in self.items)

    @property
    def left(self) -> int:
        """Bytes left over."""
        return self.total - self.used

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "role": self.role,
            "total": self.total,
            "items": [asdict(item) for item in self.items],
            "left": self.left,
        }


def budget(
    model: Model,
    shape: Shape,
    pool: Pool,
    pin: int,
    prefill_cap: int,
    graph_tokens: int,
    total: int,
    role: Role,
    parts: Sequence[Part],
) -> Budget:
    """The budget of one rank of `role` on a box of `total` bytes; `parts` are its weights (model.weights)."""
    states = min(pin - pool.draft_bytes, shape.seqs * pool.state_blocks * pool.bytes_per_block)
    items = [
        Item("weights", sum(part.rank for part in parts), "shapes", _largest(parts)),
        Item("KV pool: tokens", pin - pool.draft_bytes - states, "shapes", "the pin less the two lines below"),
        Item("KV pool: KDA states", states, "shapes", f"{shape.seqs} x {pool.state_blocks} blocks"),
        Item("KV pool: drafter's own", pool.draft_bytes, "shapes", "in blocks of its own" if pool.draft_bytes else ""),
        Item("CUDA graphs", graph_tokens * GRAPH_TOKEN, "fitted", f"{graph_tokens} tokens x 1 MiB"),
        Item("activations", shape.batch_tokens * ACTIVATION_TOKEN, "fitted", f"{shape.batch_tokens} tokens x 250 KiB"),
        Item(
            "long prompts", scores(model, shape, pool, prefill_cap), "fitted", "indexer scores, longest prompts at once"
        ),
        Item("RDMA and NCCL", RDMA_NCCL, "fitted", "registered buffers"),
        Item("CUDA and libraries", CONTEXT, "fitted", "contexts, workspaces, sampler"),
        Item("processes", PROCESSES[role], "reported", "API, engine core, worker" if role == "head" else "worker"),
        Item("host floor", HOST_FLOOR, "fitted", "system, driver"),
    ]
    return Budget(role, total, tuple(item for item in items if item.size or item.name != "KV pool: drafter's own"))


def scores(model: Model, shape: Shape, pool: Pool, prefill_cap: int) -> int:
    """Bytes that long prompts take when the step is full of the longest prompts the pool can hold."""
    every_row = shape.batch_tokens * shape.max_len
    by_pool = min(prefill_cap, shape.batch_tokens) * max(pool.tokens, 0)
    return round(min(every_row, by_pool) / int(model["target.indexer.pool"]) * SCORE_BYTES * SCORE_TENSORS)


def coarse_rule(tp: int, pin: int) -> int:
    """The original's rule of thumb for host memory: 182/TP + pin + 30 GiB, in bytes."""
    return round(182 / tp * GIB) + pin + 30 * GIB


def _largest(parts: Sequence[Part]) -> str:
    top = max(parts, key=lambda part: part.rank)
    return f"{top.rank / GIB:.1f} GiB of it {top.name}"
