"""From 0.32.0 vLLM packs mixed pages itself: the drafter's layers group without our patch, at no cost a block."""

from typing import Any

import pytest

from tests.image.behaviour.geometry import MODEL, config, specs

try:
    from vllm.v1.core import kv_cache_planning as planning  # from 0.33.0 on
except ImportError:
    from vllm.v1.core import kv_cache_utils as planning

LAYOUT = config().cache_config.get_resolved_kv_cache_layout()


@pytest.fixture(autouse=True)
def no_speculation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marking the drafter's group needs a whole speculative config; it does not change the grouping."""
    for name in ("_annotate_eagle_groups", "_warn_if_unannotated_eagle_mamba"):
        monkeypatch.setattr(planning, name, lambda *_, **__: None, raising=False)


def groups(drafter: bool) -> list[Any]:
    found: list[Any] = planning.get_kv_cache_groups(config(), specs(drafter=drafter))
    return found


def test_the_drafter_becomes_a_group_of_its_own() -> None:
    layers = [set(group.layer_names) for group in groups(drafter=True)]
    drafts = [names for names in layers if any(name.startswith("draft") for name in names)]
    assert [len(names) for names in drafts] == [5]


def test_it_costs_no_byte_a_block() -> None:
    bare = planning._get_kv_cache_bytes_per_block(groups(drafter=False), LAYOUT)
    assert planning._get_kv_cache_bytes_per_block(groups(drafter=True), LAYOUT) == bare
    assert MODEL <= bare <= MODEL * 1.001
