"""Launches for Nsight Compute: the products whose rate stays under the mark, one launch each.

    ncu --clock-control none --section SpeedOfLight --section WarpStateStats --section Occupancy \
        -k regex:dense python3 -m bench.kernels_profile
"""

from __future__ import annotations

import torch

from bench.kernels_checks import dense_fp8_case, dense_w4_case
from bench.kernels_sizes import HIDDEN, LM_HEAD

CASES = (
    (dense_w4_case, 4096, 2048, 16),
    (dense_w4_case, 1024, 4096, 8),
    (dense_w4_case, 4096, 512, 8),
    (dense_fp8_case, LM_HEAD[4], HIDDEN, 8),
    (dense_fp8_case, LM_HEAD[4], HIDDEN, 16),
    (dense_fp8_case, 4096, 4096, 8),
)

if __name__ == "__main__":
    flush = torch.empty(256 * 1024 * 1024, dtype=torch.uint8, device="cuda")
    for case, n, k, m in CASES:
        call, _ = case(n, k, m, torch.bfloat16)
        flush.zero_()
        call()
        torch.cuda.synchronize()
        print(case.__name__, n, k, m, flush=True)
