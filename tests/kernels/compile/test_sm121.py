"""Every kernel the overlays launch compiles for GB10 (sm_121a) without a GPU, within a block's shared memory."""

import pytest

from bench.kernels_variants import SHARED_LIMIT, resources, service_variants
from experimental.launch import Variant


@pytest.mark.parametrize("variant", service_variants(), ids=lambda variant: variant.name[:60])
def test_a_kernel_fits_gb10(variant: Variant) -> None:
    took = resources(variant, 121)
    assert took.shared <= SHARED_LIMIT
    assert took.registers <= 255
    assert took.registers * variant.warps * 32 <= 65536, "a block must find its registers"
    if dict(variant.constants).get("TILES", 1) <= 2:
        assert took.stack + took.local == 0, "what decode uses must not spill"
