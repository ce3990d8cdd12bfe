"""Which cuts of the kernels suit which shape: candidates checked and timed. `build` makes cubins, `run` needs a GPU.

python -m bench.kernels_sweep build build/cubins 90
GLM53_OVERLAY_CUBINS=build/cubins python -m bench.kernels_sweep run OUT.json
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as dense
from experimental.launch import FOLDER, Variant, find
from experimental.moe_decode import launch as moe
from experimental.nvfp4.cut import Shape, tiles_for

SIZES = ((6464, 4096), (4096, 2048), (1024, 4096))
TOKENS = (1, 8, 16)
MOE_TOKENS = (1, 4, 8, 16)
CUTS = ((16, 1, 2, 2), (16, 1, 4, 1), (8, 1, 4, 1), (4, 1, 4, 2), (8, 1, 2, 2))
FP8_CUTS = ((8, 1, 4, 1), (4, 1, 4, 1), (4, 1, 2, 2), (4, 1, 4, 2), (8, 1, 2, 1), (2, 1, 4, 2), (4, 1, 2, 4))
FP8_SIZES = ((38720, 4096), (6432, 4096), (4096, 4096))


def dense_candidates(k: int, tiles: int) -> Iterator[Shape]:
    """Cuts worth trying for one K and number of token tiles."""
    for k_warps, row_warps, rows, chunks in CUTS:
        if k >= 128 * chunks * k_warps and not (tiles == 2 and k_warps == 16 and rows * chunks > 2):
            yield Shape(k_warps, row_warps, rows, chunks, True)


def moe_candidates() -> Iterator[moe.Shape]:
    """Every cut of the first kernel with one of the second, and the other way round."""
    for (warps, rows), second in zip(
        ((8, 4), (8, 4), (4, 4), (8, 2)), ((4, 2, 2), (4, 2, 4), (4, 2, 4), (4, 4, 2)), strict=True
    ):
        yield moe.Shape(warps, rows, *second)


def all_variants() -> list[Variant]:
    """Every kernel the sweep launches."""
    found: dict[str, Variant] = {}
    for (_, k), tokens in itertools.product(SIZES, TOKENS):
        for shape in dense_candidates(k, tiles_for(tokens)):
            made = dense.variant(tiles_for(tokens), shape)
            found[made.name] = made
    for (_, k), tokens, cut in itertools.product(FP8_SIZES, TOKENS, FP8_CUTS):
        made = fp8.variant(tiles_for(tokens), Shape(*cut))
        found[made.name] = made
        found[fp8.quantiser(k).name] = fp8.quantiser(k)
    for cuts, tokens in itertools.product(moe_candidates(), MOE_TOKENS):
        for made in moe.variants(4096, 8, tokens, cuts):
            found[made.name] = made
    return sorted(found.values(), key=lambda made: not made.name.startswith("moe"))


def build(folder: Path, capability: int) -> None:
    """Compile every candidate into `folder`."""
    count = len(all_variants())
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(_build_one, range(count), [folder] * count, [capability] * count))
    print(f"{count} variants for sm_{capability}a in {folder}")


def _build_one(index: int, folder: Path, capability: int) -> None:
    from experimental.launch import compile_variant, store

    made = all_variants()[index]
    if find(made, capability, folder) is None:
        store(compile_variant(made, capability), made, capability, folder)


def run(out: Path) -> None:
    """Check and time all candidates; print the best of each shape."""
    from bench.kernels_timing import ceilings

    limits = ceilings()
    print(limits)
    rows = [*run_moe(), *run_fp8(), *run_dense()]
    out.write_text(json.dumps({"ceilings": limits, "rows": rows}, indent=1))


def run_dense() -> list[dict[str, Any]]:
    """All candidates of dense_w4."""
    import torch

    from bench.kernels_timing import seconds_each, sets_for
    from experimental.nvfp4.layout import dequantise

    results: list[dict[str, Any]] = []
    folder = os.environ.get(FOLDER)
    units = torch.cuda.get_device_properties(0).multi_processor_count
    for n, k in SIZES:
        size = n * k // 2 + n * k // 16
        sets = sets_for(size)
        packed = torch.randint(0, 256, (sets, n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.randint(0x20, 0x70, (sets, n, k // 16), dtype=torch.uint8, device="cuda")
        words, pairs = torch.empty_like(packed.view(torch.int16)), torch.empty_like(scales.view(torch.int16))
        for i in range(sets):
            words[i], pairs[i] = dense.arrange(packed[i], scales[i])
        alpha = torch.tensor([16384.0 * 1e-3], device="cuda")
        wide = dequantise(packed[0], scales[0], 1e-3)
        for m in TOKENS:
            x = torch.randn(m, k, device="cuda").bfloat16()
            want = (x.double() @ wide.double().T).bfloat16()
            mine: list[dict[str, Any]] = []
            for shape in dense_candidates(k, tiles_for(m)):
                made = dense.variant(tiles_for(m), shape)
                if n % shape.program_rows or (folder and find(made, 90, Path(folder)) is None):
                    continue
                got = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
                dense.product(x, words[0], pairs[0], alpha, got, shape)
                torch.cuda.synchronize()
                error = ((got.double() - want.double()).norm() / want.double().norm()).item()
                steps = [partial(dense.product, x, words[i], pairs[i], alpha, got, shape) for i in range(sets)]
                seconds = seconds_each(steps, repeats=5, least_s=0.002)
                mine.append(_row(f"dense {n}x{k} m={m}", shape, error, seconds, size, units))
            results += _show(mine)
    return results


def run_fp8() -> list[dict[str, Any]]:
    """All candidates of dense_fp8."""
    import torch

    from bench.kernels_timing import seconds_each, sets_for

    results: list[dict[str, Any]] = []
    units = torch.cuda.get_device_properties(0).multi_processor_count
    for n, k in FP8_SIZES:
        size = n * k
        sets = sets_for(size)
        w = torch.randn(sets, n, k, device="cuda").to(torch.float8_e4m3fn)
        w_scale = torch.rand(n, device="cuda") + 0.5
        for m in TOKENS:
            x = torch.randn(m, k, device="cuda").bfloat16()
            x8, x_scale = torch.empty(m, k, dtype=torch.float8_e4m3fn, device="cuda"), torch.empty(m, device="cuda")
            fp8.quantise(x, x8, x_scale)
            right = x.float().abs().amax(1) / torch.full_like(x_scale, 448.0)
            torch.cuda.synchronize()
            same = torch.equal(x_scale, right) and torch.equal(
                x8.view(torch.uint8), (x.float() / right[:, None]).to(torch.float8_e4m3fn).view(torch.uint8)
            )
            want = ((x8.double() * x_scale[:, None]) @ (w[0].double() * w_scale[:, None]).T).bfloat16().double()
            mine: list[dict[str, Any]] = []
            for cut in FP8_CUTS:
                shape = Shape(*cut)
                if n % shape.program_rows:
                    continue
                got = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
                fp8.product(x8, x_scale, w[0], w_scale, got, shape)
                torch.cuda.synchronize()
                error = ((got.double() - want).norm() / want.norm()).item()
                steps = [partial(fp8.product, x8, x_scale, w[i], w_scale, got, shape) for i in range(sets)]
                seconds = seconds_each(steps, repeats=5, least_s=0.002)
                mine.append(_row(f"fp8 {n}x{k} m={m} quantiser={same}", shape, error, seconds, size, units))
            results += _show(mine)
    return results


def run_moe() -> list[dict[str, Any]]:
    """All candidates of moe_decode at TP=4 sizes, 288 experts, top-8."""
    import torch

    from bench.kernels_timing import seconds_each, sets_for
    from experimental.moe_decode import reference

    results: list[dict[str, Any]] = []
    units = torch.cuda.get_device_properties(0).multi_processor_count
    layer = reference.random_experts(288, 4096, 512, "cuda")
    each = (3 * 512 * 4096) * 9 // 16
    for m in MOE_TOKENS:
        ids_of = [
            torch.stack([torch.randperm(288, device="cuda")[:8] for _ in range(m)]).to(torch.int32) for _ in range(64)
        ]
        touched = [len(set(ids.flatten().tolist())) for ids in ids_of]
        sets = max(4, min(64, sets_for(each * touched[0])))
        size = each * sum(touched[:sets]) / sets
        x = torch.randn(m, 4096, device="cuda").bfloat16()
        weights = torch.rand(m, 8, device="cuda")
        want = reference.moe(x, ids_of[0], weights, layer, limit=10.0, scaling=2.5)
        space = moe.workspace(m, 8, 512, x.device)
        mine: list[dict[str, Any]] = []
        for shape in moe_candidates():
            got = torch.full((m, 4096), float("nan"), dtype=torch.bfloat16, device="cuda")

            def step(ids: torch.Tensor, s: moe.Shape = shape, o: torch.Tensor = got) -> None:
                moe.moe(x, ids, weights, layer, o, space, limit=10.0, scaling=2.5, shape=s)  # noqa: B023

            step(ids_of[0])
            torch.cuda.synchronize()
            error = ((got.double() - want).norm() / want.norm()).item()
            seconds = seconds_each([partial(step, ids_of[i]) for i in range(sets)], repeats=5, least_s=0.002)
            mine.append(_row(f"moe m={m} touched={touched[0]} sets={sets}", shape, error, seconds, size, units))
        results += _show(mine)
    return results


def _row(what: str, shape: object, error: float, seconds: float, size: float, units: int) -> dict[str, Any]:
    per_unit = size / seconds / 1e9 / units
    return {"what": what, "shape": str(shape), "error": error, "us": seconds * 1e6, "gbps_per_sm": per_unit}


def _show(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in sorted(rows, key=lambda row: float(row["us"]))[:5]:
        print(
            f"{row['what']}  {row['shape'].replace('=True', '=1').replace('Shape', '')}  err {row['error']:.1e}  "
            f"{row['us']:.1f}us  {row['gbps_per_sm']:.2f}/SM"
        )
    return rows


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        run(Path(sys.argv[2]))
