"""Are the kernels right on this GPU: every size of every TP, fresh random inputs, outputs poisoned first.

`python -m bench.kernels_checks small` runs a few small cases only, for compute-sanitizer.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from bench.kernels_sizes import EXPERTS, HIDDEN, INTERMEDIATE, LM_HEAD, SIZES, TOPK
from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as w4
from experimental.moe_decode import launch as moe
from experimental.moe_decode import reference
from experimental.nvfp4.kernel import UNSCALE
from experimental.nvfp4.layout import dequantise, quantise

TOLERANCE = 1e-3
REPEATS = 1000
POISON = float("nan")


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want|| in fp64; NaN when anything was not written."""
    return float((got.double() - want.double()).norm() / want.double().norm())


def dense_w4_case(n: int, k: int, m: int, kind: torch.dtype) -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """A call of dense_w4 on fresh inputs that poisons and returns its output, and what is right."""
    rows = -(-n // w4.PAD) * w4.PAD
    weight = torch.zeros(rows, k, device="cuda")
    weight[:n] = torch.randn(n, k, device="cuda") * 0.05
    made = quantise(weight)
    x = torch.randn(m, k, device="cuda").bfloat16()
    words, pairs = w4.arrange(made.packed, made.scales)
    alpha = (made.scale_2 * UNSCALE["bf16"]).reshape(1)
    out = torch.empty(m, n, dtype=kind, device="cuda")

    def call() -> torch.Tensor:
        out.fill_(POISON)
        w4.product(x, words, pairs, alpha, out, w4.shape_for(n, k, m))
        return out

    return call, x.double() @ dequantise(made.packed, made.scales, made.scale_2)[:n].double().T


def dense_fp8_case(n: int, k: int, m: int, kind: torch.dtype) -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """The same for dense_fp8, quantiser included; right is the product of the quantised values."""
    w, scale = fp8.quantise_weight(torch.randn(n, k, device="cuda"))
    missing = -n % fp8.PAD
    w = torch.cat((w.view(torch.uint8), torch.full((missing, k), 0x7F, dtype=torch.uint8, device="cuda"))).view(w.dtype)
    scale = torch.cat((scale, scale.new_full((missing,), POISON)))
    x = torch.randn(m, k, device="cuda").bfloat16()
    x8, x_scale = torch.empty(m, k, dtype=w.dtype, device="cuda"), torch.empty(m, device="cuda")
    out = torch.empty(m, n, dtype=kind, device="cuda")

    def call() -> torch.Tensor:
        out.fill_(POISON)
        x_scale.fill_(POISON)
        fp8.quantise(x, x8, x_scale)
        fp8.product(x8, x_scale, w, scale, out, fp8.shape_for(n, m))
        return out

    right_scale = x.float().abs().amax(1) / torch.full((m,), 448.0, device="cuda")
    right = (x.float() / right_scale[:, None]).to(w.dtype).double() * right_scale.double()[:, None]
    return call, right @ (w[:n].double() * scale[:n].double()[:, None]).T


def routed(m: int, experts: int, kind: str) -> torch.Tensor:
    """int32 ids [m, TOPK].

    "random"; "skewed": a few experts get most tokens; "skips": some -1, a whole token too; "none": all -1; "same":
    eight experts for all tokens; "last": one expert for all, the one farthest into the tensors, and no other choice.
    """
    ids = torch.stack([torch.randperm(experts, device="cuda")[:TOPK] for _ in range(m)]).to(torch.int32)
    if kind == "skips":
        ids[torch.rand(m, TOPK, device="cuda") < 0.3] = -1
        ids[m // 2] = -1
    elif kind == "none":
        ids.fill_(-1)
    elif kind == "same":
        ids = ids[:1].repeat(m, 1)
    elif kind == "skewed":
        liked = torch.arange(1, experts + 1, device="cuda")[torch.randperm(experts, device="cuda")].float() ** -1.5
        ids = torch.multinomial(liked.repeat(m, 1), TOPK).to(torch.int32)
    elif kind == "last":
        ids.fill_(-1)
        ids[:, TOPK // 2] = experts - 1
    return ids


def moe_case(
    layer: moe.Experts, m: int, kind: str, dtype: torch.dtype
) -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """The same for moe_decode, scratch memory poisoned too."""
    ids = routed(m, len(layer.down), kind)
    weights = torch.rand(m, TOPK, device="cuda")
    x = torch.randn(m, layer.hidden, device="cuda").bfloat16()
    space = moe.workspace(m, TOPK, layer.intermediate, x.device)
    out = torch.empty(m, layer.hidden, dtype=dtype, device="cuda")

    def call() -> torch.Tensor:
        out.fill_(POISON)
        space.hidden.fill_(POISON)
        for scratch in (space.experts, space.where, space.count):
            scratch.fill_(123_456)
        moe.moe(x, ids, weights, layer, out, space, limit=10.0, scaling=2.5, shape=moe.shape_for(m))
        return out

    return call, reference.moe(x, ids, weights, layer, limit=10.0, scaling=2.5)


class Report:
    """Cases tried and the largest error of each kernel; prints what fails."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.failed = 0

    def error(self, kernel: str, case: str, got: torch.Tensor, want: torch.Tensor) -> None:
        """fp32 outputs against the wide result; bf16 outputs against its rounding to bf16."""
        right = want.bfloat16() if got.dtype == torch.bfloat16 else want
        error = relative(got, right) if want.any() else float(got.double().abs().max())
        row = self.rows.setdefault(kernel, {"cases": 0, "largest_error": 0.0})
        row["cases"] += 1
        row["largest_error"] = max(row["largest_error"], error)
        self.true(kernel, f"{case}: error {error:.2e}", error <= TOLERANCE)

    def true(self, kernel: str, what: str, holds: bool) -> None:
        """Count and print a failure."""
        if not holds:
            self.failed += 1
            print(f"FAIL {kernel}: {what}")


def sweep(report: Report) -> None:
    """Every (N, K) of every TP and token counts from one to the most, ragged ones among them."""
    for tp, sizes in SIZES.items():
        for n, k in sizes:
            for m in (1, 3, 8, 13, 16, 33, 64):
                call, want = dense_w4_case(n, k, m, torch.bfloat16)
                report.error("dense_w4", f"TP={tp} {n}x{k} M={m}", call(), want)
                call, want = dense_fp8_case(n, k, m, torch.bfloat16)
                report.error("dense_fp8", f"TP={tp} {n}x{k} M={m}", call(), want)
        layer = reference.random_experts(24, HIDDEN, INTERMEDIATE[tp], "cuda", seed=tp)
        for m in (1, 2, 5, 8, 9, 16, 33, 64):
            for kind in ("random", "skips") if m not in (2, 16) else ("random", "skips", "none", "same"):
                call, want = moe_case(layer, m, kind, torch.float32)
                report.error("moe_decode", f"TP={tp} M={m} {kind}", call(), want)
        layer = reference.random_experts(EXPERTS, HIDDEN, INTERMEDIATE[tp], "cuda", seed=tp)
        for m, kind in itertools.product((1, 16, 64), ("random", "skewed", "same", "last")):
            call, want = moe_case(layer, m, kind, torch.float32)
            report.error(f"moe_decode of {EXPERTS}", f"TP={tp} M={m} {kind}", call(), want)
    for m in (1, 8):
        call, want = dense_w4_case(4096, 4096, m, torch.float32)
        report.error("dense_w4 fp32", f"M={m}", call(), want)
        call, want = dense_fp8_case(LM_HEAD[4], HIDDEN, m, torch.bfloat16)
        report.error("dense_fp8", f"lm_head M={m}", call(), want)


def rounding(report: Report) -> None:
    """moe_decode's bf16 output is its fp32 output, rounded."""
    layer = reference.random_experts(24, HIDDEN, 512, "cuda")
    for m in (1, 8, 16):
        torch.manual_seed(m)
        wide = moe_case(layer, m, "random", torch.float32)[0]()
        torch.manual_seed(m)
        short = moe_case(layer, m, "random", torch.bfloat16)[0]()
        report.true("moe_decode", f"M={m}: bf16 is not the rounded fp32", torch.equal(wide.bfloat16(), short))


def repeats(report: Report) -> None:
    """Bit-identical over many runs, and a graph's replay equals the eager run."""
    layer = reference.random_experts(48, HIDDEN, 512, "cuda")
    cases = {
        "dense_w4": dense_w4_case(6416, 4096, 16, torch.bfloat16)[0],
        "dense_fp8": dense_fp8_case(6416, 4096, 16, torch.bfloat16)[0],
        "moe_decode": moe_case(layer, 16, "skips", torch.bfloat16)[0],
    }
    for kernel, call in cases.items():
        first = call().clone()
        different = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(REPEATS):
            different += (call().view(torch.int16) != first.view(torch.int16)).any()
        report.true(kernel, f"{int(different)} of {REPEATS} repeats differ", int(different) == 0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        out.fill_(POISON)
        graph.replay()
        report.true(kernel, "a graph's replay differs", torch.equal(out.view(torch.int16), first.view(torch.int16)))


def small() -> int:
    """A few small cases, for compute-sanitizer."""
    report = Report()
    for m in (1, 13):
        report.error("dense_w4", f"M={m}", *_ran(dense_w4_case(200, 512, m, torch.bfloat16)))
        report.error("dense_fp8", f"M={m}", *_ran(dense_fp8_case(200, 512, m, torch.bfloat16)))
        layer = reference.random_experts(9, HIDDEN, 128, "cuda")
        report.error("moe_decode", f"M={m}", *_ran(moe_case(layer, m, "skips", torch.float32)))
    torch.cuda.synchronize()
    print(json.dumps(report.rows), "failed", report.failed)
    return report.failed


def _ran(case: tuple[Callable[[], torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return case[0](), case[1]


def run() -> dict[str, Any]:
    """All checks; raises SystemExit when one fails."""
    torch.manual_seed(torch.seed() % 2**31)
    report = Report()
    sweep(report)
    rounding(report)
    repeats(report)
    for kernel, row in report.rows.items():
        print(f"{kernel}: {row['cases']} cases, largest error {row['largest_error']:.1e}")
    print(f"{REPEATS} repeats and graph replay: " + ("see above" if report.failed else "identical"))
    if report.failed:
        raise SystemExit(f"{report.failed} checks failed")
    return {"kernels": report.rows, "repeats": REPEATS, "tolerance": TOLERANCE}


if __name__ == "__main__":
    sys.exit(small() if sys.argv[1:] == ["small"] else int(not run()))
