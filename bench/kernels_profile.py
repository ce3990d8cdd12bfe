"""Launches for Nsight Compute: the kernels whose rate stays under the mark, one launch each, after the L2 was flushed.

    ncu --clock-control none --section SpeedOfLight --section MemoryWorkloadAnalysis --section WarpStateStats \
        --section Occupancy --section LaunchStats -k regex:"dense|attend" python3 -m bench.kernels_profile
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.kernels_checks import dense_fp8_case, dense_w4_case
from bench.kernels_sizes import HEADS, HIDDEN, LM_HEAD, MLA_TOKENS
from bench.kernels_sparse_mla import SM_SCALE, made
from experimental.sparse_mla.launch import sparse_mla

CASES = (
    (dense_w4_case, 4096, 2048, 16),
    *((dense_w4_case, n, k, m) for n, k in ((1024, 4096), (4096, 512)) for m in (1, 8, 16)),
    (dense_fp8_case, LM_HEAD[4], HIDDEN, 8),
    (dense_fp8_case, LM_HEAD[4], HIDDEN, 16),
    (dense_fp8_case, 4096, 4096, 8),
)
ROWS = 2048


def launches() -> dict[str, Callable[[], Any]]:
    """Every call by a name that says which it is, in order."""
    found: dict[str, Callable[[], Any]] = {}
    for case, n, k, m in CASES:
        found[f"{case.__name__} {n}x{k} M={m}"] = case(n, k, m, torch.bfloat16)[0]
    for tokens in MLA_TOKENS:
        q, kv, idx, lens = made(tokens, HEADS[4], ROWS, 1 << 20, True, False, seed=1)

        def attention(
            q: torch.Tensor = q, kv: torch.Tensor = kv, idx: torch.Tensor = idx, lens: torch.Tensor = lens
        ) -> torch.Tensor:
            return sparse_mla(q, kv, idx, lens, SM_SCALE)

        found[f"sparse_mla T={tokens}"] = attention
    return found


if __name__ == "__main__":
    flush = torch.empty(256 * 1024 * 1024, dtype=torch.uint8, device="cuda")
    for name, call in launches().items():
        flush.zero_()
        call()
        torch.cuda.synchronize()
        print(name, flush=True)
