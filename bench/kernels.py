"""How fast are the kernels on this GPU, and are they right; `./glm53 bench kernels`.

The sections of bench/kernels_sizes.py in order: checks, what the memory can do, then each kernel over working sets
several times the L2 with the plain way beside it, and vLLM's own kernel where vLLM imports. `--dry-run` lists all of
it and needs no GPU. JSON goes to bench/results/kernels-<gpu>.json after every section, so that nothing is lost when a
lent machine's time ends.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

from bench import kernels_checks, kernels_small, kernels_sparse_mla
from bench.kernels_sizes import (
    DENSE_TOKENS,
    EXPERTS,
    GATE_TOKENS,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    MHC_TOKENS,
    MLA_TOKENS,
    MOE_TOKENS,
    POOL_ROWS,
    POOLS,
    SIZES,
    TOPK,
    dense_fp8_layers,
    parser,
    sections,
)
from bench.kernels_timing import ceilings, seconds_each, sets_for
from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as w4
from experimental.launch import FOLDER
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
        for m in DENSE_TOKENS:
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
    for n, k in dense_fp8_layers(tp):
        padded = -(-n // fp8.PAD) * fp8.PAD
        size = n * k + 4 * n
        sets = sets_for(size)
        w = torch.randint(0, 120, (sets, padded, k), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
        scale = torch.rand(padded, device="cuda")
        for m in DENSE_TOKENS:
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
    for m in MOE_TOKENS:
        batches = [kernels_checks.routed(m, EXPERTS, "random") for _ in range(max(4, 64 // m))]
        touched = [len(ids.unique()) for ids in batches]
        weights = torch.rand(m, TOPK, device="cuda")
        x = torch.randn(m, HIDDEN, device="cuda").bfloat16()
        out = torch.empty_like(x)
        space = moe.workspace(m, TOPK, half, x.device)
        call = partial(moe.moe, limit=10.0, scaling=1.0, shape=moe.shape_for(m))
        seconds = seconds_each([partial(call, x, ids, weights, layer, out, space) for ids in batches])
        plain = seconds_each([partial(_plain_moe, x, batches[0].unique().tolist(), layer)], repeats=3)
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


def _row(kernel: str, size: str, m: int, moved: float, seconds: float, plain: float) -> dict[str, Any]:
    units = torch.cuda.get_device_properties(0).multi_processor_count
    rate = moved / seconds / 1e9
    row = {"kernel": kernel, "size": size, "m": m, "us": seconds * 1e6, "gbps": rate, "gbps_per_sm": rate / units}
    return row | {"plain_us": plain * 1e6}


def markdown(result: dict[str, Any]) -> str:
    """The tables of the READMEs for what was measured."""
    lines = [f"{result['gpu']}, {result['sms']} SMs."]
    rows = [row for name in ("dense_w4", "dense_fp8", "moe_decode") for row in result.get(name, ())]
    read = result.get("ceilings", {}).get("read_gbps")
    if read:
        lines[0] = (
            f"{result['gpu']}, {result['sms']} SMs; copy {result['ceilings']['copy_gbps']:.0f} GB/s, read {read:.0f} "
            f"GB/s; an empty launch in a graph {result['ceilings']['launch_floor_us']:.1f} us."
        )
    if rows:
        lines += [
            "",
            "| kernel | size | M | us | GB/s | GB/s per SM | share of read | dequantise, then matmul, us |",
            "|---|---|---|---|---|---|---|---|",
        ]
    for row in rows:
        share = f"{100 * row['gbps'] / read:.0f} %" if read else ""
        lines.append(
            f"| {row['kernel']} | {row['size']} | {row['m']} | {row['us']:.1f} | {row['gbps']:.0f} | "
            f"{row['gbps_per_sm']:.1f} | {share} | {row['plain_us']:.0f} |"
        )
    if "sparse_mla" in result:
        lines += [
            "",
            "| sparse_mla, tokens | us | gather alone us | products alone us | share of the slower | torch us |",
            "|---|---|---|---|---|---|",
        ]
        for row in result["sparse_mla"]["times"]:
            lines.append(
                f"| {row['tokens']} | {1e3 * row['ms']:.1f} | {1e3 * row['gather_only_ms']:.1f} | "
                f"{1e3 * row['products_only_ms']:.1f} | {100 * row['share_of_limit']:.0f} % | "
                f"{1e3 * row['torch_ms']:.0f} |"
            )
    for name in ("topk", "head_gate", "mhc"):
        for row in result.get(name, ()):
            lines.append(f"{name} " + " ".join(f"{key}={_short(value)}" for key, value in row.items()))
    return "\n".join(lines)


def by_size(result: dict[str, Any], kernel: str) -> str:
    """The README's line of a TP: of each size the rates at its token counts, GB/s per SM; dense_fp8's as % of read."""
    read = result["ceilings"]["read_gbps"]
    sizes: dict[str, list[str]] = {}
    for row in result[kernel]:
        share = kernel == "dense_fp8"
        rate = f"{100 * row['gbps'] / read:.0f}" if share else f"{row['gbps_per_sm']:.1f}"
        sizes.setdefault(row["size"].removeprefix(f"TP={result['tp']} "), []).append(rate)
    return f"- TP={result['tp']}: " + "; ".join(f"{size} {' / '.join(rates)}" for size, rates in sizes.items())


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ceilings(options: argparse.Namespace) -> dict[str, float]:
    return ceilings() | {"launch_floor_us": launch_floor()}


def _sparse_mla(options: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {}
    if not kernels_sparse_mla.checked(report, options.quick):
        raise Wrong("sparse_mla: see above")
    return report | {"times": [kernels_sparse_mla.timed(tokens, HEADS[4], 2048, ()) for tokens in MLA_TOKENS]}


def _topk(options: argparse.Namespace) -> list[dict[str, Any]]:
    shapes = itertools.product(POOL_ROWS, POOLS, (True, False))
    rows = [kernels_small.topk_case(rows, pools, ties=ties) for rows, pools, ties in shapes]
    differ = ("calls_that_differ", "calls_of_the_patch_that_differ")
    if any(row[name] for row in rows for name in differ) or not all(row["equals_stable_sort"] for row in rows):
        raise Wrong(f"topk: {rows}")
    return rows


def by_tokens(name: str, case: Callable[[int], dict[str, Any]], tokens: Sequence[int]) -> list[dict[str, Any]]:
    """A section that has one case a token count. Raises Wrong for an error over 1e-5, or that is no number."""
    rows = [case(count) for count in tokens]
    if not all(row["error"] <= 1e-5 for row in rows):
        raise Wrong(f"{name}: {rows}")
    return rows


def _causal_conv(options: argparse.Namespace) -> dict[str, Any] | str:
    path = options.conv or kernels_small.stock_file("model_executor/layers/mamba/ops/causal_conv1d.py")
    if path is None:
        return "left out: no vLLM here; --conv FILE with its causal_conv1d.py"
    found = kernels_small.conv(path)
    if not all(case["equal"] for case in found["cases"]):
        raise Wrong(f"causal_conv: {found['cases']}")
    return found


class Wrong(RuntimeError):
    """A check that did not hold."""


# A function a section of bench/kernels_sizes.py, under its name.
MEASURES: dict[str, Callable[[argparse.Namespace], Any]] = {
    "checks": lambda options: kernels_checks.run(),
    "ceilings": _ceilings,
    "dense_w4": lambda options: dense_w4_rows(options.tp),
    "dense_fp8": lambda options: dense_fp8_rows(options.tp),
    "moe_decode": lambda options: moe_rows(options.tp),
    "sparse_mla": _sparse_mla,
    "topk": _topk,
    "head_gate": lambda options: by_tokens("head_gate", kernels_small.gate_case, GATE_TOKENS),
    "causal_conv": _causal_conv,
    "mhc": lambda options: by_tokens("mhc", kernels_small.mhc_case, MHC_TOKENS),
}


def measure(options: argparse.Namespace, result: dict[str, Any], out: Path) -> int:
    """Run the sections into `result`, writing it after each one; how many failed or found no time.

    A section starts only before the deadline of --minutes, so the run ends one section after it at the latest.
    """
    started, failed = time.monotonic(), 0
    for section in sections(options.only, no_checks=options.no_checks):
        begun = time.monotonic()
        if begun - started > 60 * options.minutes:
            result[section.name] = f"left out: no time left of {options.minutes} minutes"
            failed += 1
        else:
            try:
                result[section.name] = MEASURES[section.name](options)
            except (Wrong, SystemExit, RuntimeError) as problem:
                result["failures"] = {**result.get("failures", {}), section.name: str(problem)[:2000]}
                failed += 1
            torch.cuda.empty_cache()
        result["seconds"] = {**result.get("seconds", {}), section.name: round(time.monotonic() - begun, 1)}
        print(f"stage={section.name} seconds={result['seconds'][section.name]} failed={failed}", flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    return failed


def main(arguments: list[str]) -> int:
    """Measure, write the JSON, print the tables; or list what would be measured."""
    options = parser().parse_args(arguments)
    if options.vllm_library:
        torch.ops.load_library(str(options.vllm_library))
    properties = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cubins": os.environ.get(FOLDER) is not None,
        "tp": options.tp,
    }
    name = re.sub(r"[^a-z0-9]+", "-", properties.name.lower()).strip("-")
    out = options.out or RESULTS / f"kernels-{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    failed = measure(options, result, out)
    print(markdown(result))
    print(f"written: {out}")
    for section, problem in result.get("failures", {}).items():
        print(f"FAILED {section}: {problem}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
