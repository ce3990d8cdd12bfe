"""The drafter's KV cache through the grouping of vLLM before 0.32.0, with the model's geometry."""

import importlib.util
import pickle
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.image.behaviour.geometry import (
    BLOCK,
    DRAFT_PAGE,
    INDEX_PAGE,
    MLA_PAGE,
    MODEL,
    config,
    specs,
)

GIB = 2**30


@pytest.fixture(scope="module")
def utils() -> ModuleType:
    from vllm.v1.core import kv_cache_utils

    module: ModuleType = kv_cache_utils
    return module


def stock_module(stock: Path) -> ModuleType:
    """The same file as published, as a second module."""
    path = stock / "vllm/v1/core/kv_cache_utils.py"
    spec = importlib.util.spec_from_file_location("vllm.v1.core.kv_cache_utils_as_published", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_without_the_patch_it_raises_after_the_weights(utils: ModuleType, stock: Path) -> None:
    published = stock_module(stock)
    with pytest.raises(NotImplementedError):
        published.get_kv_cache_groups(config(), specs(drafter=True))


def test_without_a_drafter_nothing_changes(utils: ModuleType, stock: Path) -> None:
    ours = utils.get_kv_cache_groups(config(), specs(drafter=False))
    theirs = stock_module(stock).get_kv_cache_groups(config(), specs(drafter=False))
    assert ours == theirs
    assert utils._get_kv_cache_bytes_per_block(ours) == MODEL == 13_812_480


def regions(made: Any, page: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {
        tensor.layers[0]: (tensor.offset, tensor.offset + page[tensor.layers[0]] * made.num_blocks)
        for tensor in made.kv_cache_tensors
    }


def test_regions_tile_the_pool(utils: ModuleType) -> None:
    """The drafter's regions lie behind the model's, share nothing, and end where the pool ends."""
    layers = specs(drafter=True)
    groups = utils.get_kv_cache_groups(config(), layers)
    assert utils._get_kv_cache_bytes_per_block(groups) == MODEL + 5 * DRAFT_PAGE == 19_710_720
    made = utils.get_kv_cache_config_from_groups(config(), groups, 26 * GIB)
    assert made.num_blocks == 26 * GIB // 19_710_720 == 1416

    page = {name: INDEX_PAGE if "indexer" in name else MLA_PAGE for name in layers}
    page |= {name: DRAFT_PAGE for name in layers if name.startswith("draft")}
    placed = regions(made, page)
    assert set(placed) == set(layers)
    size = made.kv_cache_tensors[0].size
    assert {tensor.size for tensor in made.kv_cache_tensors} == {size}
    edges = sorted(set(placed.values()))
    assert edges[0][0] == 0
    assert edges[-1][1] == size == made.num_blocks * 19_710_720
    assert all(left[1] == right[0] for left, right in pairwise(edges)), "gap or overlap"
    drafts = [span for name, span in placed.items() if name.startswith("draft")]
    assert len(set(drafts)) == 5
    assert min(drafts)[0] == 11 * (MLA_PAGE + INDEX_PAGE) * made.num_blocks
    assert not set(drafts) & {span for name, span in placed.items() if not name.startswith("draft")}


def test_blocks_of_a_request_are_counted(utils: ModuleType) -> None:
    with_drafter = utils.get_kv_cache_groups(config(), specs(drafter=True))
    without = utils.get_kv_cache_groups(config(), specs(drafter=False))
    model_blocks = utils._max_memory_usage_bytes_from_groups(config(), without) // MODEL
    all_blocks = utils._max_memory_usage_bytes_from_groups(config(), with_drafter) / 19_710_720
    assert all_blocks == model_blocks + -(-(2047 + 8192) // BLOCK) + 1


def test_the_scheduler_sees_one_block_size_and_the_prefix_cache_no_drafter(utils: ModuleType) -> None:
    groups = utils.get_kv_cache_groups(config(), specs(drafter=True))
    made = utils.get_kv_cache_config_from_groups(config(), groups, 26 * GIB)
    assert utils.resolve_kv_cache_block_sizes(made, config()) == (BLOCK, BLOCK)
    assert len(groups) - 1 not in made.prefix_cacheable_group_ids
    assert pickle.loads(pickle.dumps(made)) == made


def test_the_drafter_has_a_sliding_window_manager(utils: ModuleType) -> None:
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    spec = utils.get_kv_cache_groups(config(), specs(drafter=True))[-1].kv_cache_spec
    assert type(spec).__name__ == "DraftSlidingWindowSpec"
    KVCacheSpecRegistry.check_kv_cache_spec_registry({"draft": spec})
    assert KVCacheSpecRegistry.get_manager_class(spec).__name__ == "SlidingWindowManager"


def test_a_pipeline_stage_without_the_drafter(utils: ModuleType) -> None:
    layers = specs(drafter=True)
    groups = utils.get_kv_cache_groups(config(), layers)
    own = {name: spec for name, spec in layers.items() if not name.startswith("draft")}
    projected = utils._project_kv_cache_groups_to_worker(groups, own)
    assert utils._get_kv_cache_bytes_per_block(projected) == MODEL
    made = utils.get_kv_cache_config_from_groups(config(), projected, 26 * GIB)
    assert made.num_blocks == 26 * GIB // MODEL
