"""sparse_mla and topk compile for GB10 (sm_121a) without a GPU, within a block's shared memory; needs no device."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
from bench.kernels_variants import SHARED_LIMIT, resources
from experimental.sparse_mla.launch import variants
from experimental.topk.launch import SPARE, variant
for made in (*variants(16, 2176, fp8=True)[:2], *variants(64, 2176, fp8=True)[:1], variant(512 + SPARE)):
    took = resources(made, 121)
    print("TOOK", made.kernel.__name__, took.registers, took.shared, took.stack + took.local,
          took.shared <= SHARED_LIMIT)
"""


def test_service_kernels_fit_a_block_of_gb10() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    took = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("TOOK")]
    assert len(took) == 4, done.stderr[-3000:]
    assert all(row[-1] == "True" for row in took), took
    assert [row[3] for row in took if row[0] == "attend"][:2] == ["0", "0"]  # 16 heads: nothing spills
