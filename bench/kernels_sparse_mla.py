"""Sparse MLA on the GPU at hand: correctness sweep, repeats, graph replay, and time beside its limits.

The limit of a shape is the slower of two kernels timed in the same run: one that only gathers the same rows, and
one that only does the same matrix products on rows already at hand. Run by `./glm53 bench kernels`, or alone:

    python -m bench.kernels_sparse_mla [--out FILE] [--quick]
"""

# Triton reads annotations of its kernels as code, so they have none.
# ruff: noqa: ANN001, ANN201

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from bench.kernels_timing import seconds_each, sets_for
from experimental.launch import FOLDER
from experimental.sparse_mla.launch import WIDTH, Shape, rows_per_split, sparse_mla, splits_for
from experimental.sparse_mla.reference import reference

SM_SCALE = 1 / 16.0  # 256 ** -0.5, the model's own
SHAPES = tuple(Shape(rows, warps) for rows, warps in ((16, 4), (32, 4), (32, 8), (64, 8)))


@triton.jit  # type: ignore[untyped-decorator]
def gather_only(  # type: ignore[no-untyped-def]
    kv_ptr, idx_ptr, out_ptr, stride_it, topk, rows_per_split, D: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Reads the rows `attend` would read, as words, and keeps a sum so that nothing is left out."""
    token = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    dim = tl.arange(0, D)
    slot = tl.arange(0, ROWS)
    acc = tl.zeros([ROWS, D], tl.int32)
    last = tl.minimum((split + 1) * rows_per_split, topk)
    for start in tl.range(split * rows_per_split, last, ROWS):
        row = tl.load(idx_ptr + token * stride_it + start + slot).to(tl.int64)
        acc += tl.load(kv_ptr + row[:, None] * D + dim[None, :])
    tl.store(out_ptr + (token * tl.num_programs(1) + split) * D + dim, tl.sum(acc, 0))


@triton.jit  # type: ignore[untyped-decorator]
def products_only(  # type: ignore[no-untyped-def]
    q_ptr, kv_ptr, out_ptr, rows_per_split, HEADS: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """The two products of `attend` on one tile held on chip; each step's weights come from the step before."""
    token = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    dim = tl.arange(0, D)
    head = tl.arange(0, HEADS)
    slot = tl.arange(0, ROWS)
    q = tl.load(q_ptr + head[:, None] * D + dim[None, :])
    kv = tl.load(kv_ptr + slot[:, None] * D + dim[None, :])
    if KEYS_FIRST:
        q = tl.trans(q)
        score = tl.zeros([ROWS, HEADS], tl.float32)
        acc = tl.zeros([D, HEADS], tl.float32)
    else:
        score = tl.zeros([HEADS, ROWS], tl.float32)
        acc = tl.zeros([HEADS, D], tl.float32)
    for _ in tl.range(0, rows_per_split, ROWS):
        if KEYS_FIRST:
            score = tl.dot(kv, q, score)
            acc = tl.dot(tl.trans(kv), score.to(tl.float16), acc)
        else:
            score = tl.dot(q, tl.trans(kv), score)
            acc = tl.dot(score.to(tl.float16), kv, acc)
    if KEYS_FIRST:
        acc = tl.trans(acc)
    place = (token * tl.num_programs(1) + split) * HEADS
    tl.store(out_ptr + (place + head[:, None]) * D + dim[None, :], acc.to(tl.float16))


def made(tokens: int, heads: int, topk: int, rows: int, fp8: bool, ragged: bool, seed: int) -> tuple[torch.Tensor, ...]:
    """Fresh random q, kv, idx, lens on the GPU; `ragged` gives lengths from 0 to topk."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    q = torch.randn(tokens, heads, WIDTH, device="cuda", generator=generator).bfloat16()
    kv = torch.randn(rows, WIDTH, device="cuda", generator=generator)
    stored = kv.to(torch.float8_e4m3fn).view(torch.uint8) if fp8 else kv.bfloat16()
    idx = torch.randint(0, rows, (tokens, topk), device="cuda", generator=generator, dtype=torch.int32)
    lens = torch.full((tokens,), topk, dtype=torch.int32, device="cuda")
    if ragged:
        lens = torch.randint(0, topk + 1, (tokens,), device="cuda", generator=generator, dtype=torch.int32)
        lens[0] = 0
        idx[torch.arange(topk, device="cuda")[None] >= lens[:, None]] = -1
    return q, stored, idx, lens


def error(
    q: torch.Tensor, kv: torch.Tensor, idx: torch.Tensor, lens: torch.Tensor, out: torch.Tensor, scale: float
) -> float:
    """Relative Frobenius error against fp64, on at most 64 tokens spread over the batch."""
    picked = torch.linspace(0, q.shape[0] - 1, min(64, q.shape[0]), device=q.device).long().unique()
    truth = reference(q[picked], kv, idx[picked], lens[picked], SM_SCALE, scale)
    return float((out[picked].double() - truth).norm() / truth.norm().clamp_min(1e-30))


def check(quick: bool) -> list[dict[str, Any]]:
    """Errors over heads, tokens, topk, ragged rows and both cache types; NaN in a poisoned output never passes."""
    sizes = [(1, 1), (1, 2176), (4, 512), (8, 2048), (64, 2176), (300, 77)]
    sizes += [] if quick else [(4096, 2048)]
    cases = []
    for heads, (tokens, topk), fp8 in itertools.product((11, 16, 22, 32, 64), sizes, (True, False)):
        q, kv, idx, lens = made(tokens, heads, topk, 65536, fp8, tokens > 1, seed=heads * 7919 + tokens)
        scale = 0.37 if fp8 else 1.0
        out = torch.full_like(q, float("nan"))
        sparse_mla(q, kv, idx, lens, SM_SCALE, scale, out=out)
        seen = error(q, kv, idx, lens, out, scale)
        whole = bool((out[lens == 0] == 0).all()) and not bool(out.isnan().any())
        ok = whole and seen <= (5e-3 if fp8 else 2e-3)
        cases.append({"heads": heads, "tokens": tokens, "topk": topk, "fp8": fp8, "error": seen, "ok": ok})
    return cases


def layouts_agree() -> bool:
    """Flat and block-strided caches with the same rows give the same bytes."""
    block, blocks, pad = 2304, 20, 76032
    q, kv, idx, lens = made(33, 16, 2176, block * blocks, True, True, seed=5)
    strided = torch.zeros(blocks, block * WIDTH + pad, dtype=torch.uint8, device="cuda")
    strided[:, : block * WIDTH] = kv.view(blocks, -1)
    flat = sparse_mla(q, kv, idx, lens, SM_SCALE, 0.5)
    other = sparse_mla(q, strided, idx, lens, SM_SCALE, 0.5, block_rows=block, block_stride=strided.stride(0))
    return bool(torch.equal(flat, other))


def repeats(times: int) -> dict[str, bool]:
    """The same bytes on every repeat, and from a captured graph as eagerly, split and unsplit."""
    verdict = {}
    for tokens in (4, 300):
        q, kv, idx, lens = made(tokens, 16, 2176, 262144, True, True, seed=tokens)
        first = sparse_mla(q, kv, idx, lens, SM_SCALE, 0.5)
        out = torch.empty_like(q)
        same = True
        for _ in range(times):
            out.fill_(float("nan"))
            sparse_mla(q, kv, idx, lens, SM_SCALE, 0.5, out=out)
            same = same and torch.equal(out, first)
        verdict[f"repeat_{tokens}"] = same
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sparse_mla(q, kv, idx, lens, SM_SCALE, 0.5, out=out)
        out.fill_(float("nan"))
        graph.replay()
        verdict[f"graph_{tokens}"] = torch.equal(out, first)
    return verdict


def milliseconds(works: Sequence[Callable[[], Any]]) -> float:
    """Median device time of one of `works`, from replays of a graph of all of them."""
    return 1e3 * seconds_each(works)


def by_torch(q: torch.Tensor, kv: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Gather, then scaled_dot_product_attention: what one would write without a kernel."""
    parts = []
    for start in range(0, q.shape[0], 64):  # more at once does not fit in the card
        some = q[start : start + 64, :, None]
        rows = kv[idx[start : start + 64].long()].view(torch.float8_e4m3fn).bfloat16()[:, None]
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(some, rows, rows, scale=SM_SCALE, enable_gqa=True)
        )
    return torch.cat(parts)


def searched(
    calls: Sequence[Callable[..., torch.Tensor]], tokens: int, topk: int, shapes: tuple[Shape, ...]
) -> dict[str, float | None]:
    """ms of every shape and a few splits; None where it does not fit."""
    usual = splits_for(tokens, topk)
    found: dict[str, float | None] = {}
    for shape, splits in itertools.product(shapes, sorted({usual, max(1, usual // 2), usual * 2})):
        if splits > 1 and topk // splits < 32:
            continue
        name = f"rows{shape.rows} warps{shape.warps} splits={splits}"
        try:
            found[name] = milliseconds([partial(call, shape=shape, splits=splits) for call in calls])
        except (triton.runtime.errors.OutOfResources, RuntimeError) as problem:
            found[name] = None
            print("left out:", name, str(problem)[:80])
    return found


def limits(kv: torch.Tensor, lists: Sequence[torch.Tensor], heads: int) -> tuple[dict[str, float], dict[str, float]]:
    """ms of the gather-only and of the products-only kernel, in every cut tried."""
    tokens, topk = lists[0].shape
    words, usual = kv.view(torch.int32), splits_for(tokens, topk)
    half = torch.randn(64, WIDTH, device="cuda").half() * 0.01
    gathers, products = {}, {}
    for splits in (1, usual, 2 * usual, 4 * usual):
        per = rows_per_split(topk, splits, 16)
        real = triton.cdiv(topk, per)
        sums = torch.empty((tokens, real, WIDTH), dtype=torch.int32, device="cuda")
        result = torch.empty((tokens, real, max(16, heads), WIDTH), dtype=torch.float16, device="cuda")
        many: Any = gather_only[(tokens, real)]
        flat: Any = products_only[(tokens, real)]
        for rows, warps, stages in ((16, 4, 4), (32, 4, 3), (16, 2, 4)):
            if per % rows == 0:
                fixed = {"D": WIDTH // 4, "ROWS": rows, "num_warps": warps, "num_stages": stages}
                calls = [partial(many, words, idx, sums, topk, topk, per, **fixed) for idx in lists]
                gathers[f"splits={splits} rows{rows} warps{warps}"] = milliseconds(calls)
        for rows, warps, first in ((32, 4, False), (64, 8, False), (64, 4, True), (64, 8, True)):
            if per % rows == 0:
                padded = max(16, triton.next_power_of_2(heads))
                fixed = {"HEADS": padded, "D": WIDTH, "ROWS": rows, "KEYS_FIRST": first, "num_warps": warps}
                product = partial(flat, half, half, result, per, **fixed)
                products[f"splits={splits} rows{rows} warps{warps} keys_first={first}"] = milliseconds(
                    [product] * len(lists)
                )
    return gathers, products


def timed(tokens: int, heads: int, topk: int, shapes: tuple[Shape, ...]) -> dict[str, Any]:
    """Times in ms of the chosen form (and of `shapes`), of the two limits and of torch.

    The calls of a graph take different rows, together several times the L2.
    """
    q, kv, _, lens = made(tokens, heads, topk, 1 << 20, True, False, seed=1)
    generator = torch.Generator(device="cuda").manual_seed(2)
    lists = [
        torch.randint(0, 1 << 20, (tokens, topk), device="cuda", generator=generator, dtype=torch.int32)
        for _ in range(sets_for(tokens * topk * WIDTH))
    ]
    calls = [partial(sparse_mla, q, kv, idx, lens, SM_SCALE) for idx in lists]
    chosen = milliseconds(calls)
    gathers, products = limits(kv, lists, heads)
    gather, product = min(gathers.values()), min(products.values())
    stock = milliseconds([partial(by_torch, q, kv, idx) for idx in lists[:2]])
    return {
        "tokens": tokens, "heads": heads, "topk": topk, "ms": chosen, "gather_only_ms": gather,
        "products_only_ms": product, "share_of_limit": max(gather, product) / chosen, "torch_ms": stock,
        "times_faster_than_torch": stock / chosen, "gathered_gb_s": tokens * topk * WIDTH / chosen / 1e6,
        "gathers": gathers, "products": products, "variants": searched(calls, tokens, topk, shapes),
    }  # fmt: skip


def checked(report: dict[str, Any], quick: bool) -> bool:
    """Fill in and print the checks; whether all hold."""
    checks = check(quick)
    bad = [case for case in checks if not case["ok"]]
    report |= {"checks": checks, "layouts_agree": layouts_agree(), "repeats": repeats(20 if quick else 1000)}
    print("checks", len(checks), "largest error", max(case["error"] for case in checks), "bad", bad)
    print("layouts agree", report["layouts_agree"], report["repeats"], flush=True)
    return not bad and report["layouts_agree"] and all(report["repeats"].values())


def main() -> int:
    """Check, time, print a table, write JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", action="store_true", help="no checks")
    parser.add_argument("--search", action="store_true", help="time every compiled form, not only the chosen one")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "cubins": os.environ.get(FOLDER) is not None,
    }  # fmt: skip
    good = options.times or checked(report, options.quick)
    report["times"] = []
    for tokens in (8, 64, 2048):
        row = timed(tokens, 16, 2048, SHAPES if options.search else ())
        report["times"].append(row)
        print({key: value for key, value in row.items() if not isinstance(value, dict)}, flush=True)
        print({key: value for key, value in row["variants"].items()})
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
