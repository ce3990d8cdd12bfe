"""Every kernel the overlays launch compiles for GB10 (sm_121a) without a GPU, within a block's shared memory.

What each takes is held against docs/kernels-resources.md, so that the table cannot grow stale.
"""

import sys
from dataclasses import replace
from typing import Any

import pytest

from bench.kernels_small import patch_choose
from bench.kernels_variants import POOLS_KEPT, SHARED_LIMIT, TABLE, resources, row, service_variants
from experimental.launch import Variant
from experimental.topk import launch as topk

LINES = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
STALE = "docs/kernels-resources.md is stale: python -m bench.kernels_variants table"


@pytest.mark.parametrize("variant", service_variants(), ids=lambda variant: variant.name[:60])
def test_a_kernel_fits_gb10(variant: Variant) -> None:
    took = resources(variant, 121)
    assert took.shared <= SHARED_LIMIT
    assert took.registers <= 255
    assert took.registers * variant.warps * 32 <= 65536, "a block must find its registers"
    constants = dict(variant.constants)
    if constants.get("TILES", 1) <= 2 and constants.get("HEADS", 16) <= 16:
        assert took.stack + took.local == 0, "what decode uses at TP=4 must not spill"
    assert row(variant, took) in LINES, STALE


def test_the_table_has_these_kernels_and_no_others() -> None:
    assert len(set(LINES)) == len(LINES) == len(service_variants()), STALE


def _of_the_patch() -> Any:
    """The kernel as the image's patch launches it."""
    patch_choose()
    return sys.modules["image.payload.glm53_topk"]._kernel()


def test_one_compilation_of_the_patchs_kernel_serves_all_widths_and_views() -> None:
    passed = [parameter for parameter in _of_the_patch().params if not parameter.is_constexpr]
    assert len(passed) == 10
    assert all(item.do_not_specialize or item.do_not_specialize_on_alignment for item in passed)


@pytest.mark.full
def test_the_patchs_kernel_compiles_unspecialised() -> None:
    ours = topk.variant(POOLS_KEPT + topk.SPARE)
    plain = tuple((name, kind.removesuffix("/16")) for name, kind in ours.arguments)
    took = resources(replace(ours, kernel=_of_the_patch(), arguments=plain), 121)
    assert took.shared <= SHARED_LIMIT
    assert took.stack + took.local == 0
