"""The model's sizes per rank, and what `./glm53 bench kernels` measures at which of them. Standard library only.

SECTIONS is the whole run in order: a name, what each case of it gives, and the cases. bench/kernels.py has one function
a section; `--dry-run` prints this table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

HIDDEN, TOPK, EXPERTS = 4096, 8, 288
# Per rank (N, K) of the layers dense_w4's pattern names: KDA input, output projections, shared experts.
SIZES = {
    2: ((12576, 4096), (4096, 8192), (4096, 4096), (2048, 4096), (4096, 1024)),
    3: ((8726, 4096), (4096, 5632), (4096, 2816), (1536, 4096), (4096, 768)),
    4: ((6416, 4096), (4096, 4096), (4096, 2048), (1024, 4096), (4096, 512)),
    6: ((4491, 4096), (4096, 2816), (4096, 1408), (768, 4096), (4096, 384)),
}
INTERMEDIATE = {2: 1024, 3: 768, 4: 512, 6: 384}
LM_HEAD = {tp: -(-154880 // (64 * tp)) * 64 for tp in SIZES}
# MLA heads of a rank; 64 has no TP, the issue names it.
HEADS = {2: 32, 3: 22, 4: 16, 6: 11}
DENSE_TOKENS = (1, 8, 16)
MOE_TOKENS = (1, 2, 4, 8, 16, 32, 64)
MLA_TOKENS = (8, 64, 2048)
POOL_ROWS, POOLS = (1, 64, 16128), (1300, 8000)
GATE_TOKENS = (1, 8, 64, 2048, 16384)
CONV_LENGTHS = ((1,), (7, 1, 9), (2304, 5, 64), (16384,))
MHC_TOKENS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Section:
    """One part of the run: `gives` says which numbers a case yields, `cases` lists them for a TP."""

    name: str
    gives: str
    cases: Callable[[int], list[str]]


def dense_fp8_layers(tp: int) -> tuple[tuple[int, int], ...]:
    """(N, K) of lm_head and the largest layers, where dense_fp8 is measured."""
    return ((LM_HEAD[tp], HIDDEN), *SIZES[tp][:3])


SECTIONS: tuple[Section, ...] = (
    Section(
        "checks",
        "largest error of dense_w4, dense_fp8, moe_decode; 1,000 repeats and graph replay",
        lambda tp: (
            [f"TP={each}, every (N, K), M of 1-64, 24 experts: ids random, skipped, none, the same" for each in SIZES]
            + [
                f"TP={each}, {EXPERTS} experts, 1, 16, 64 tokens: ids random, skewed, the same, the last"
                for each in SIZES
            ]
        ),
    ),
    Section(
        "ceilings",
        "GB/s of copying and of reading; us of an empty launch in a graph",
        lambda tp: ["2 GB", "an empty launch"],
    ),
    Section(
        "dense_w4",
        "us, GB/s per SM; dequantise-then-matmul beside",
        lambda tp: [f"{n}x{k} M={m}" for n, k in SIZES[tp] for m in DENSE_TOKENS],
    ),
    Section(
        "dense_fp8",
        "us, share of measured read bandwidth, with and without the quantiser; dequantise-then-matmul beside",
        lambda tp: [f"{n}x{k} M={m}" for n, k in dense_fp8_layers(tp) for m in DENSE_TOKENS],
    ),
    Section(
        "moe_decode",
        "us, GB/s per SM of the experts touched; dequantise-then-matmul beside, at every token count",
        lambda tp: [f"I={INTERMEDIATE[tp]} {m} tokens" for m in MOE_TOKENS],
    ),
    Section(
        "sparse_mla",
        "errors, both layouts, 1,000 repeats, graph replay; us beside gather-only, products-only, gather + SDPA",
        lambda tp: (
            ["70 cases: H of 11-64, T of 1-4096, topk of 1-2176, e4m3 and bf16"]
            + [f"H=16 topk=2048 T={tokens}" for tokens in MLA_TOKENS]
        ),
    ),
    Section(
        "topk",
        "200 calls by overlay and patch: same bytes, equal to a stable sort; us beside torch.topk and vLLM's kernels",
        lambda tp: [f"{rows} rows of {pools}{ties}" for rows in POOL_ROWS for pools in POOLS for ties in (" tied", "")],
    ),
    Section(
        "head_gate",
        "error, overlap of the chosen pools, us beside stock",
        lambda tp: [f"{tokens} tokens" for tokens in GATE_TOKENS],
    ),
    Section(
        "causal_conv",
        "torch.equal to the stock split; us beside stock with its copies. Needs vLLM's causal_conv1d.py (--conv)",
        lambda tp: [f"lengths {list(lengths)}" for lengths in CONV_LENGTHS],
    ),
    Section(
        "mhc",
        "error, same bits from bf16 and fp32 weights, us of both, and of vLLM's kernel where it imports",
        lambda tp: [f"{tokens} tokens" for tokens in MHC_TOKENS],
    ),
)


def sections(only: Collection[str] = (), *, no_checks: bool = False) -> tuple[Section, ...]:
    """The sections of a run, in order: all, or those of `only`."""
    named = (section for section in SECTIONS if not only or section.name in only)
    return tuple(section for section in named if not (no_checks and section.name == "checks"))


def listing(tp: int, only: Collection[str] = (), *, no_checks: bool = False) -> str:
    """What a run would measure, a line a case."""
    lines = []
    for section in sections(only, no_checks=no_checks):
        lines += [f"{section.name}: {section.gives}", *(f"  {case}" for case in section.cases(tp))]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The bench's options; --dry-run takes the same ones and lists what they would measure."""
    made = argparse.ArgumentParser(
        prog="glm53 bench kernels",
        description="Check and measure the kernels of experimental/ on this machine's GPU.",
        epilog="Besides: --python PATH, a Python with a CUDA torch and Triton; --dry-run lists only and needs no GPU.",
    )
    made.add_argument("--tp", type=int, choices=tuple(SIZES), default=4, help="sizes per rank of this TP")
    names = [section.name for section in SECTIONS]
    made.add_argument("--only", nargs="+", choices=names, default=[], metavar="SECTION", help=", ".join(names))
    made.add_argument("--no-checks", action="store_true", help="measure only")
    made.add_argument("--quick", action="store_true", help="sparse_mla: fewer checks")
    made.add_argument("--minutes", type=float, default=8, help="start no section after this many minutes")
    made.add_argument("--conv", type=Path, help="vLLM's causal_conv1d.py, where vLLM itself is not installed")
    made.add_argument("--vllm-library", type=Path, help="_C_stable_libtorch.abi3.so of vLLM's wheel: its own top-k")
    made.add_argument("--out", type=Path, help="where the JSON goes")
    return made


def main(arguments: list[str]) -> int:
    """Print the listing."""
    options = parser().parse_args(arguments)
    print(listing(options.tp, options.only, no_checks=options.no_checks))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
