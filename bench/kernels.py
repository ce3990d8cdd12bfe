"""How fast are the 4-bit and 8-bit kernels on this GPU, beside what its memory can do; `./glm53 bench kernels`.

Checks first (bench/kernels_checks.py), then ceilings, then each kernel at the sizes of TP=4 over working sets several
times the L2, then the time of dequantise-then-matmul for the same work. JSON goes to bench/results/kernels-<gpu>.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench import kernels_checks
from bench.kernels_timing import ceilings, seconds_each, sets_for
from bench.kernels_variants import EXPERTS, HIDDEN, INTERMEDIATE, LM_HEAD, SIZES, TOPK
from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as w4
from experimental.moe_decode import launch as moe
from experimental.moe_decode import reference
from experimental.nvfp4.kernel import UNSCALE
from experimental.nvfp4.layout import dequantise, unswizzle

RESULTS = Path(__file__).resolve().parent / "results"


def dense_w4_rows(tp: int) -> list[dict[str, Any]]:
    """Packed weights and scales read a second, M = 1, 8, 16, and dequantise-then-matmul."""
    rows = []
    for n, k in SIZES[tp]:
        padded = -(-n // w4.PAD) * w4.PAD
        size = n * k // 2 + n * k // 16
        sets = sets_for(size)
        packed = torch.randint(0, 256, (sets, padded, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.randint(0x20, 0x70, (sets, padded, k // 16), dtype=torch.uint8, device="cuda")
        words, pairs = packed.view(torch.int16), scales.view(torch.int16)
        alpha = torch.full((1,), 1e-3 * UNSCALE["bf16"], device="cuda")
        for m in (1, 8, 16):
            x = torch.randn(m, k, device="cuda").bfloat16()
            out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
            shape = w4.shape_for(n, k, m)
            seconds = seconds_each([partial(w4.product, x, words[i], pairs[i], alpha, out, shape) for i in range(sets)])
            plain = seconds_each([partial(_plain_w4, x, packed[i], scales[i]) for i in range(2)], repeats=3)
            rows.append(_row("dense_w4", f"{n}x{k}", m, size, seconds, plain))
    return rows


def _plain_w4(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return x @ dequantise(packed, scales, 1e-3).bfloat16().T


def dense_fp8_rows(tp: int) -> list[dict[str, Any]]:
    """Weights read a second at small M, without and with the token quantiser, and dequantise-then-matmul."""
    rows = []
    for n, k in ((LM_HEAD[tp], HIDDEN), *SIZES[tp][:3]):
        padded = -(-n // fp8.PAD) * fp8.PAD
        size = n * k + 4 * n
        sets = sets_for(size)
        w = torch.randint(0, 120, (sets, padded, k), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
        scale = torch.rand(padded, device="cuda")
        for m in (1, 8, 16):
            x = torch.randn(m, k, device="cuda").bfloat16()
            x8, x_scale = torch.empty(m, k, dtype=w.dtype, device="cuda"), torch.empty(m, device="cuda")
            out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
            shape = fp8.shape_for(n, m)
            fp8.quantise(x, x8, x_scale)
            products = [partial(fp8.product, x8, x_scale, w[i], scale, out, shape) for i in range(sets)]
            both: list[Callable[[], Any]] = []
            for product in products:
                both += [partial(fp8.quantise, x, x8, x_scale), product]
            plain = seconds_each([partial(_plain_fp8, x, w[i], scale) for i in range(2)], repeats=3)
            row = _row("dense_fp8", f"{n}x{k}", m, size, seconds_each(products), plain)
            row["us_with_quantiser"] = 2e6 * seconds_each(both)
            rows.append(row)
    return rows


def _plain_fp8(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x @ (w.float() * scale[:, None]).bfloat16().T


def moe_rows(tp: int) -> list[dict[str, Any]]:
    """Packed weights and scales of the touched experts read a second, random routing."""
    rows = []
    half = INTERMEDIATE[tp]
    layer = reference.random_experts(EXPERTS, HIDDEN, half, "cuda")
    each = 3 * half * HIDDEN * 9 // 16
    for m in (1, 2, 4, 8, 16, 32, 64):
        batches = [kernels_checks.routed(m, EXPERTS, "random") for _ in range(max(4, 64 // m))]
        touched = [len(ids.unique()) for ids in batches]
        weights = torch.rand(m, TOPK, device="cuda")
        x = torch.randn(m, HIDDEN, device="cuda").bfloat16()
        out = torch.empty_like(x)
        space = moe.workspace(m, TOPK, half, x.device)
        call = partial(moe.moe, limit=10.0, scaling=1.0, shape=moe.shape_for(m))
        seconds = seconds_each([partial(call, x, ids, weights, layer, out, space) for ids in batches])
        plain = None
        if m <= 8:
            experts = batches[0].unique().tolist()
            plain = seconds_each([partial(_plain_moe, x, experts, layer)], repeats=3)
        row = _row("moe_decode", f"TP={tp} I={half}", m, each * sum(touched) / len(touched), seconds, plain)
        row["experts_touched"] = sum(touched) / len(touched)
        rows.append(row)
    return rows


def _plain_moe(x: torch.Tensor, experts: list[int], layer: moe.Experts) -> torch.Tensor:
    out = torch.zeros_like(x)
    half = layer.intermediate
    for expert in experts:
        s13 = unswizzle(layer.s13[expert][None], 2 * half, layer.hidden // 16)[0]
        s2 = unswizzle(layer.s2[expert][None], layer.hidden, half // 16)[0]
        up, gate = (x @ dequantise(layer.w13[expert], s13, 1e-3).bfloat16().T).split(half, 1)
        out += (torch.nn.functional.silu(gate) * up) @ dequantise(layer.w2[expert], s2, 1e-3).bfloat16().T
    return out


def launch_floor() -> float:
    """Microseconds a launch in a graph when the kernel has next to nothing to do."""
    x = torch.zeros(1, 512, dtype=torch.bfloat16, device="cuda")
    x8, scale = torch.empty(1, 512, dtype=torch.float8_e4m3fn, device="cuda"), torch.empty(1, device="cuda")
    return 1e6 * seconds_each([partial(fp8.quantise, x, x8, scale)] * 64)


def _row(kernel: str, size: str, m: int, moved: float, seconds: float, plain: float | None) -> dict[str, Any]:
    units = torch.cuda.get_device_properties(0).multi_processor_count
    rate = moved / seconds / 1e9
    row = {"kernel": kernel, "size": size, "m": m, "us": seconds * 1e6, "gbps": rate, "gbps_per_sm": rate / units}
    return row | {"plain_us": None if plain is None else plain * 1e6}


def markdown(result: dict[str, Any]) -> str:
    """The tables of the READMEs."""
    read = result["ceilings"]["read_gbps"]
    lines = [
        f"{result['gpu']}, {result['sms']} SMs; copy {result['ceilings']['copy_gbps']:.0f} GB/s, read {read:.0f} GB/s; "
        f"an empty launch in a graph {result['launch_floor_us']:.1f} us.",
        "",
        "| kernel | size | M | us | GB/s | GB/s per SM | share of read | dequantise, then matmul, us |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        plain = "" if row["plain_us"] is None else f"{row['plain_us']:.0f}"
        lines.append(
            f"| {row['kernel']} | {row['size']} | {row['m']} | {row['us']:.1f} | {row['gbps']:.0f} | "
            f"{row['gbps_per_sm']:.1f} | {100 * row['gbps'] / read:.0f} % | {plain} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Check, measure, write the JSON, print the table."""
    parser = argparse.ArgumentParser(prog="glm53 bench kernels", description=__doc__)
    parser.add_argument("--tp", type=int, choices=tuple(SIZES), default=4, help="sizes per rank of this TP")
    parser.add_argument("--no-checks", action="store_true", help="measure only")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args(arguments)
    properties = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "torch": torch.__version__,
        "tp": options.tp,
    }
    if not options.no_checks:
        result["checks"] = kernels_checks.run()
    result["ceilings"] = ceilings()
    result["launch_floor_us"] = launch_floor()
    result["rows"] = [*dense_w4_rows(options.tp), *dense_fp8_rows(options.tp), *moe_rows(options.tp)]
    name = re.sub(r"[^a-z0-9]+", "-", properties.name.lower()).strip("-")
    out = options.out or RESULTS / f"kernels-{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    print(f"written: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
