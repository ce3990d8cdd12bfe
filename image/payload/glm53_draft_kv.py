"""KV cache groups for a drafter with sliding-window layers, beside the model's own aliased groups.

Installed into the vllm package by the patch `draft-kv-groups` (bases before 0.32.0). The model's groups share
regions (state with MLA, tail with indexer); a drafter layer shares nothing: each gets a region behind the indexer's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from vllm.v1.kv_cache_interface import KVCacheGroupSpec, KVCacheSpec, MLAAttentionSpec, SlidingWindowSpec


@dataclass(frozen=True, kw_only=True)
class DraftSlidingWindowSpec(SlidingWindowSpec):  # type: ignore[misc]
    """A drafter's sliding window. Not in the prefix cache: after a hit it drafts from stale blocks for one window,
    which lowers the acceptance for a while and never changes the output.
    """

    @property
    def prefix_cacheable(self) -> bool:
        """Never: a hit of the model's groups must not wait for the drafter's."""
        return False


def split(specs: dict[str, KVCacheSpec]) -> tuple[dict[str, KVCacheSpec], list[KVCacheGroupSpec]]:
    """The specs without the drafter's, and the drafter's groups (one per distinct spec).

    A drafter is a plain SlidingWindowSpec beside MLA layers. Its block becomes the model's, so that one block size
    drives scheduler and hashes.
    """
    blocks = {spec.block_size for spec in specs.values() if type(spec) is MLAAttentionSpec}
    draft = {name: spec for name, spec in specs.items() if type(spec) is SlidingWindowSpec}
    if not draft or len(blocks) != 1:
        return specs, []
    block = blocks.pop()
    groups: defaultdict[DraftSlidingWindowSpec, list[str]] = defaultdict(list)
    for name, spec in draft.items():
        groups[_draft(spec, block)].append(name)
    rest = {name: spec for name, spec in specs.items() if name not in draft}
    return rest, [KVCacheGroupSpec(names, spec) for spec, names in groups.items()]


def _draft(spec: SlidingWindowSpec, block: int) -> DraftSlidingWindowSpec:
    values: dict[str, Any] = {field.name: getattr(spec, field.name) for field in fields(spec) if field.init}
    return DraftSlidingWindowSpec(**{**values, "block_size": block})


def _is_draft(group: KVCacheGroupSpec) -> bool:
    return isinstance(group.kv_cache_spec, DraftSlidingWindowSpec)


def without_draft(groups: Sequence[KVCacheGroupSpec]) -> list[KVCacheGroupSpec]:
    """The model's own groups. A pipeline stage may hold none of a drafter's layers: its group is then empty."""
    return [group for group in groups if not _is_draft(group)]


def layers(groups: Sequence[KVCacheGroupSpec]) -> list[tuple[str, KVCacheSpec]]:
    """Every drafter layer with its spec, in the order of its regions."""
    return [(name, group.kv_cache_spec) for group in groups if _is_draft(group) for name in group.layer_names]


def bytes_per_block(groups: Sequence[KVCacheGroupSpec]) -> int:
    """Bytes that the drafter's regions add to one block."""
    return sum(spec.page_size_bytes for _, spec in layers(groups))


def blocks(vllm_config: Any, groups: Sequence[KVCacheGroupSpec]) -> int:
    """Most blocks one request holds for the drafter."""
    return sum(
        -(-group.kv_cache_spec.max_memory_usage_bytes(vllm_config) // group.kv_cache_spec.page_size_bytes)
        for group in groups
        if _is_draft(group) and group.layer_names
    )


__all__ = ["DraftSlidingWindowSpec", "blocks", "bytes_per_block", "layers", "split", "without_draft"]
