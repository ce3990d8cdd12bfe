"""Every kernel the overlays launch compiles for GB10 (sm_121a) without a GPU, within a block's shared memory."""

import pytest

from bench.kernels_variants import SHARED_LIMIT, resources, service_variants
from experimental.launch import Variant

ALL = service_variants()
# Compiled on every run: each kernel at one and two tiles of tokens, as GB10's decode uses them.
USUAL = [variant for variant in ALL if dict(variant.constants).get("TILES", 1) <= 2]
LARGE = [variant for variant in ALL if variant not in USUAL]


def fits(variant: Variant) -> None:
    took = resources(variant, 121)
    assert took.shared <= SHARED_LIMIT
    assert took.registers <= 255
    assert took.registers * variant.warps * 32 <= 65536, "a block must find its registers"


@pytest.mark.parametrize("variant", USUAL, ids=lambda variant: variant.name[:60])
def test_a_kernel_fits_gb10(variant: Variant) -> None:
    fits(variant)


@pytest.mark.full
@pytest.mark.parametrize("variant", LARGE, ids=lambda variant: variant.name[:60])
def test_a_kernel_for_many_tokens_fits_gb10(variant: Variant) -> None:
    fits(variant)
