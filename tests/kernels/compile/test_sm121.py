"""Every kernel the overlays launch compiles for GB10 (sm_121a) without a GPU, within a block's shared memory.

What each takes is held against docs/kernels-resources.md, so that the table cannot grow stale.
"""

import sys
from dataclasses import replace

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


def test_the_patch_of_the_image_compiles_its_kernel_once_for_all_widths_and_views() -> None:
    patch_choose()
    kernel = sys.modules["image.payload.glm53_topk"]._kernel()
    passed = [parameter for parameter in kernel.params if not parameter.is_constexpr]
    assert all(item.do_not_specialize or item.do_not_specialize_on_alignment for item in passed)
    ours = topk.variant(POOLS_KEPT + topk.SPARE)
    plain = tuple((name, kind.removesuffix("/16")) for name, kind in ours.arguments)
    took = resources(replace(ours, kernel=kernel, arguments=plain), 121)
    assert took.shared <= SHARED_LIMIT
    assert took.stack + took.local == 0
