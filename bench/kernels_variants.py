"""Every kernel that the overlays launch in service, and what each takes: registers, shared memory, spills.

python -m bench.kernels_variants build FOLDER 121     cubins for an image (or 90, for an H200)
python -m bench.kernels_variants table                writes docs/kernels-resources.md for sm_121a
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.kernels_sizes import HEADS, HIDDEN, LM_HEAD, SIZES, TOPK
from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as w4
from experimental.launch import Variant, compile_variant, find, store
from experimental.mhc import launch as mhc
from experimental.moe_decode import launch as moe
from experimental.nvfp4.cut import tiles_for
from experimental.sparse_mla import launch as mla
from experimental.topk import launch as topk

ROOT = Path(__file__).resolve().parent.parent
# A block of GB10 may take this many bytes of shared memory.
SHARED_LIMIT = 101_376
TOKENS = (8, 16, 32, 64)
# The widest list of rows a token has, and the pools the indexer keeps.
ROWS, POOLS_KEPT = 2176, 512
TABLE = ROOT / "docs" / "kernels-resources.md"


@dataclass(frozen=True)
class Resources:
    """What one variant takes."""

    registers: int
    shared: int
    stack: int
    local: int


def service_variants(tokens: tuple[int, ...] = TOKENS) -> list[Variant]:
    """All variants of all sizes, once each, by name."""
    found: dict[str, Variant] = {}
    for m in tokens:
        layers = [size for sizes in SIZES.values() for size in sizes]
        made = [w4.variant(tiles_for(m), w4.shape_for(n, k, m)) for n, k in layers]
        heads = [(n, HIDDEN) for n in LM_HEAD.values()]
        made += [fp8.variant(tiles_for(m), fp8.shape_for(n, m)) for n, _ in (*layers, *heads)]
        made += [fp8.quantiser(k) for _, k in layers]
        made += [*moe.variants(HIDDEN, TOPK, m, moe.shape_for(m))]
        found |= {variant.name: variant for variant in made}
    found |= {variant.name: variant for variant in moe.variants(HIDDEN, TOPK, 1, moe.shape_for(1))}
    others = [topk.variant(POOLS_KEPT + topk.SPARE)]
    for count, fp8_cache in itertools.product((*HEADS.values(), 64), (True, False)):
        others += mla.variants(count, ROWS, fp8=fp8_cache)
    others += mla.variants(HEADS[4], ROWS, fp8=True, strided=True)
    others += [mhc.variant(mhc.tile_for(m)) for m in (1, mhc.MAX_TOKENS)]
    found |= {variant.name: variant for variant in others}
    return [found[name] for name in sorted(found)]


def check_variants() -> list[Variant]:
    """Those that the bench launches besides: fp32 outputs and weights, the small cases."""
    small = [w4.variant(tiles_for(m), w4.shape_for(200, 512, m)) for m in (1, 13)]
    wide = [w4.variant(1, w4.shape_for(4096, 4096, 8), "fp32")]
    for m in (1, *TOKENS):
        wide += moe.variants(HIDDEN, TOPK, m, moe.shape_for(m), "fp32")
    wide += [mhc.variant(tile, stored) for tile in mhc.TILES for stored in ("bf16", "fp32")]
    return [*small, *wide]


def build_one(name: str, folder: Path, capability: int) -> None:
    """Compile one service variant into `folder` when it is not there."""
    variant = next(item for item in (*service_variants(), *check_variants()) if item.name == name)
    if find(variant, capability, folder) is None:
        store(compile_variant(variant, capability), variant, capability, folder)


def build(folder: Path, capability: int) -> None:
    """Compile all service variants."""
    names = [variant.name for variant in (*service_variants(), *check_variants())]
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(build_one, names, [folder] * len(names), [capability] * len(names)))


def resources(variant: Variant, capability: int) -> Resources:
    """Compile and ask cuobjdump, which comes with Triton, what the cubin takes."""
    import triton

    binary = compile_variant(variant, capability)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.cubin)
        file.flush()
        said = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    numbers = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", said))
    return Resources(int(numbers["REG"]), binary.shared, int(numbers["STACK"]), int(numbers["LOCAL"]))


def row(variant: Variant, took: Resources) -> str:
    """A variant's line of the table."""
    kernel, constants = variant.name.split("-", 1)
    constants = re.sub(r"-(OVERLAP1|FAST1)|-w\d+-\w+$", "", constants)
    if variant.kernel.__name__ == "attend":
        constants += " e4m3" if dict(variant.constants)["FP8"] else " bf16"
    return (
        f"| {kernel} | {constants} | {variant.warps} | {took.registers} | {took.shared} | {took.stack + took.local} |"
    )


def _row_of(name: str) -> str:
    variant = next(variant for variant in service_variants() if variant.name == name)
    return row(variant, resources(variant, 121))


def table() -> None:
    """Write docs/kernels-resources.md. The suite's compile tests hold every line of it against a fresh compilation."""
    import triton

    names = [variant.name for variant in service_variants()]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(_row_of, names))
    head = (
        "# What each kernel takes on sm_121a\n\n"
        f"Generated by `python -m bench.kernels_variants table` with Triton {triton.__version__}. "
        f"A block may take {SHARED_LIMIT:,} bytes of shared memory. No TP of 2, 3, 4 or 6 has the 64 heads.\n\n"
        "| kernel | constants | warps | registers a thread | shared bytes a block | spilled bytes a thread |\n"
        "|---|---|---|---|---|---|\n"
    )
    TABLE.write_text(head + "\n".join(rows) + "\n")


def main(arguments: list[str]) -> int:
    """Build or write the table, as the words say; usage for any others."""
    match arguments:
        case ["build", folder, "90" | "121" as capability]:
            build(Path(folder), int(capability))
        case ["table"]:
            table()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
