"""topk, head_gate, causal_conv and mhc on the GPU at hand: are they right, always the same, and what do they cost.

Sections of bench/kernels.py. torch.topk on permuted columns gives topk's candidates here, another choice among ties
on every call; vLLM's own kernels are in its wheel for GPUs only and are timed where that imports, or from the wheel's
`vllm/_C_stable_libtorch.abi3.so` alone (`./glm53 bench kernels --vllm-library FILE`), which needs no vLLM and any torch
from 2.11 on.

    python -m bench.kernels_small    a few small launches of sparse_mla, topk and mhc, for compute-sanitizer
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from bench.kernels_timing import seconds_each
from experimental.causal_conv.grouped import grouped
from experimental.head_gate import launch as gate
from experimental.mhc.launch import TILES, fused_post_pre
from experimental.mhc.reference import random_inputs
from experimental.mhc.reference import reference as mhc_reference
from experimental.sparse_mla.launch import sparse_mla
from experimental.topk.launch import SPARE, refine_topk

K = 512
CALLS = 200
REPEATS = 1000


def scores(rows: int, width: int, *, ties: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and ends of ragged rows; with `ties` the score at the cut is held by about a third of each row."""
    logits = torch.randn(rows, width, device="cuda")
    if ties:
        cut = logits.kthvalue(width - K, dim=1, keepdim=True).values
        near = (logits - cut).abs() < torch.rand(rows, 1, device="cuda") * 0.5
        logits = torch.where(near, cut, logits)
    ends = torch.randint(width // 2, width + 1, (rows,), device="cuda", dtype=torch.int32)
    ends[0] = width
    if rows > 8:
        ends[1:8] = torch.tensor([0, 1, K - 1, K, K + 1, K + SPARE, K + SPARE + 1], dtype=torch.int32)
    logits[torch.arange(width, device="cuda")[None] >= ends[:, None]] = float("-inf")
    return logits, ends


def candidates(logits: torch.Tensor, ends: torch.Tensor, count: int, *, permuted: bool = True) -> torch.Tensor:
    """The `count` best of each row, ties broken anyhow; -1 past the row's end."""
    order = torch.randperm(logits.shape[1], device="cuda") if permuted else torch.arange(logits.shape[1], device="cuda")
    found = order[torch.topk(logits[:, order], count, dim=1, sorted=False).indices].int()
    return torch.where(found < ends[:, None], found, -1).contiguous()


def sorted_on_host(logits: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The right answer by a stable sort on the CPU."""
    chosen = torch.sort(logits.cpu(), dim=1, descending=True, stable=True).indices[:, :K].int()
    none = torch.iinfo(torch.int32).max
    chosen = torch.where(chosen < ends.cpu()[:, None], chosen, none).sort(dim=1).values
    return torch.where(chosen == none, -1, chosen)


def topk_case(rows: int, width: int, *, ties: bool) -> dict[str, Any]:
    """Determinism over CALLS calls with other candidates each, the set against the host, and time."""
    logits, ends = scores(rows, width, ties=ties)
    starts = torch.zeros_like(ends)
    out = torch.empty(rows, K, dtype=torch.int32, device="cuda")
    refine_topk(logits, candidates(logits, ends, K + SPARE), starts, ends, out)
    first, different = out.clone(), 0
    drift = torch.zeros((), dtype=torch.int64, device="cuda")
    stock = candidates(logits, ends, K).sort(dim=1).values
    patch, patch_drift, patch_out = patch_choose(), torch.zeros_like(drift), torch.empty_like(out)
    for _ in range(CALLS):
        out.fill_(-7)
        patch_out.fill_(-7)
        held = candidates(logits, ends, K + SPARE)
        refine_topk(logits, held, starts, ends, out)
        patch(logits, held, starts, ends, patch_out)
        drift += (out != first).any()
        patch_drift += (patch_out != first).any()
    for _ in range(3):  # what the plain choice does with the same freedom: how often sets differ
        different += int((candidates(logits, ends, K).sort(dim=1).values != stock).any())
    return {
        "rows": rows, "pools": width, "ties": ties, "calls_that_differ": int(drift),
        "calls_of_the_patch_that_differ": int(patch_drift),
        "equals_stable_sort": bool(torch.equal(first.cpu(), sorted_on_host(logits, ends))),
        "plain_sets_that_differ_of_3": different,
        "refine_us": 1e6 * seconds_each([partial(refine_topk, logits, held, starts, ends, out)]),
        "patch_us": 1e6 * seconds_each([partial(patch, logits, held, starts, ends, patch_out)]),
        "torch_topk_512_us": 1e6 * seconds_each([partial(torch.topk, logits, K, dim=1, sorted=False)]),
        "torch_topk_544_us": 1e6 * seconds_each([partial(torch.topk, logits, K + SPARE, dim=1, sorted=False)]),
        **stock_topk_us(logits, starts, ends),
    }  # fmt: skip


def vllm_topk() -> Any | None:
    """vLLM's registered CUDA operators with its top-k kernels, or None where its wheel for GPUs is not installed."""
    if not hasattr(torch.ops._C, "top_k_per_row_prefill"):  # --vllm-library has registered them
        try:
            importlib.import_module("vllm._custom_ops")
        except ImportError:
            return None
    return torch.ops._C if hasattr(torch.ops._C, "top_k_per_row_prefill") else None


def stock_topk_us(logits: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> dict[str, float | None]:
    """us of vLLM's per-row kernel for k and for our candidates, for prefill and decode, and of its persistent one."""
    stock, rows = vllm_topk(), logits.shape[0]
    names = ("prefill_512", "prefill_544", "decode_512", "decode_544", "persistent_512")
    if stock is None:
        return dict.fromkeys((f"vllm_{name}_us" for name in names), None)
    works: dict[str, Callable[[], Any]] = {}
    strides = (rows, logits.stride(0), logits.stride(1))
    for count in (K, K + SPARE):
        out = torch.empty(rows, count, dtype=torch.int32, device="cuda")
        works[f"prefill_{count}"] = partial(stock.top_k_per_row_prefill, logits, starts, ends, out, *strides, count)
        works[f"decode_{count}"] = partial(stock.top_k_per_row_decode, logits, 1, ends, out, *strides, count)
    space, out = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"), out[:, :K].contiguous()
    works["persistent_512"] = partial(stock.persistent_topk, logits, ends, out, space, K, logits.shape[1])
    return {f"vllm_{name}_us": 1e6 * seconds_each([work]) for name, work in works.items()}


def gate_case(tokens: int) -> dict[str, Any]:
    """Error, time and the overlap of the pools chosen, beside the stock fp32 product."""
    hidden = torch.randn(tokens, 4096, device="cuda").bfloat16()
    weight = (torch.randn(16, 4096, device="cuda") / 64).bfloat16()
    wide = weight.t().contiguous().float()
    ours, stock, right = gate.head_gate(hidden, weight), torch.mm(hidden.float(), wide), gate.reference(hidden, weight)
    overlap = None
    if tokens <= 64:
        q = torch.randn(tokens, 16, 128, device="cuda")
        pools = torch.randn(8000, 128, device="cuda")
        reach = torch.einsum("thd,pd->thp", q, pools).relu()
        sets = [torch.einsum("thp,th->tp", reach, w).topk(K).indices.sort().values for w in (ours, stock)]
        overlap = sum(torch.isin(a, b).float().mean().item() for a, b in zip(*sets, strict=True)) / tokens
    return {
        "tokens": tokens, "error": _relative(ours, right), "stock_error": _relative(stock, right),
        "against_stock": _relative(ours, stock.double()), "topk_overlap": overlap,
        "us": 1e6 * seconds_each([partial(gate.head_gate, hidden, weight)]),
        "stock_us": 1e6 * seconds_each([lambda: torch.mm(hidden.float(), wide)]),
    }  # fmt: skip


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@contextmanager
def stand_ins(needs: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Modules of these names and contents while the block runs: enough for one file of vLLM to be imported alone."""
    kept = {name: sys.modules.get(name) for name in needs}
    for name, values in needs.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(values)
    try:
        yield
    finally:
        for name, before in kept.items():
            if before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before


def stock_conv(path: Path) -> ModuleType:
    """vLLM's causal_conv1d.py alone: what it imports of vLLM is a platform question and two numbers."""
    import triton
    import triton.language as tl

    platform = SimpleNamespace(is_arch_support_pdl=lambda: False, is_cpu=lambda: False)
    needs: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"tl": tl, "triton": triton},
        "vllm.v1.attention.backends.utils": {"NULL_BLOCK_ID": 0, "PAD_SLOT_ID": -1},
    }
    with stand_ins(needs):
        spec = importlib.util.spec_from_file_location("stock_causal_conv1d", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def patch_choose() -> Callable[..., None]:
    """`choose` of image/payload/glm53_topk.py, which the image's patch calls; of vLLM it takes the logger alone."""
    kernel = importlib.import_module("image.payload.glm53_topk_kernel")
    log = SimpleNamespace(warning=print)
    needs: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.logger": {"init_logger": lambda name: log},
        "vllm.glm53_topk_kernel": vars(kernel),
    }
    with stand_ins(needs):
        choose: Callable[..., None] = importlib.import_module("image.payload.glm53_topk").choose
    return choose


def conv_inputs(lengths: list[int], dim: int, device: str, kind: torch.dtype) -> dict[str, Any]:
    """Arguments of causal_conv1d_fn for sequences of these lengths, all but the states."""
    count, tokens = len(lengths), sum(lengths)
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    chunks = [(row, part) for row, length in enumerate(lengths) for part in range(-(-length // 8))]
    batch = torch.tensor([row for row, _ in chunks], dtype=torch.int32, device=device)
    offset = torch.tensor([part for _, part in chunks], dtype=torch.int32, device=device)
    plan = {"tot": len(chunks), "mlist": batch, "mlist_len": len(chunks), "offsetlist": offset}
    plan |= {"batch_ptr": batch, "token_chunk_offset_ptr": offset}
    if device == "cpu":  # the launcher hands these over when the interpreter has already turned tensors into pointers
        from triton.runtime.interpreter import _implicit_cvt

        plan |= {name: _implicit_cvt(plan[name]) for name in ("batch_ptr", "token_chunk_offset_ptr")}
    return {
        "x": torch.randn(tokens, dim, device=device).to(kind).t(),
        "weight": torch.randn(dim, 4, device=device).to(kind),
        "bias": None,
        "query_start_loc": starts,
        "cache_indices": torch.arange(1, count + 1, dtype=torch.int32, device=device),
        "has_initial_state": torch.arange(count, device=device) % 2 == 1,
        "activation": "silu",
        "metadata": SimpleNamespace(nums_dict={8: plan}, batch_ptr=batch, token_chunk_offset_ptr=offset),
    }


def conv_agrees(module: ModuleType, lengths: list[int], dim: int, device: str, kind: torch.dtype) -> bool:
    """Whether outputs equal the stock output's slices and the state caches are equal, bit for bit."""
    inputs = conv_inputs(lengths, dim, device, kind)
    # As vLLM lays the cache out: features next to each other.
    states = torch.randn(len(lengths) + 1, 3, dim, device=device).to(kind).transpose(1, 2)
    theirs, ours = states.clone(), states.clone()
    stock = module.causal_conv1d_fn(conv_states=theirs, **inputs).transpose(0, 1)
    parts = grouped(module)(conv_states=ours, **inputs, out_groups=3)
    dense = all(part.is_contiguous() for part in parts)
    same = all(torch.equal(a, b) for a, b in zip(parts, stock.split(dim // 3, dim=-1), strict=True))
    return dense and same and torch.equal(theirs, ours)


def conv(path: Path) -> dict[str, Any]:
    """Bit-identity over lengths and widths of every TP; time at 16k tokens with the copies FlashKDA needs otherwise."""
    module = stock_conv(path)
    lengths = ([1], [7, 1, 9], [2304, 5, 64], [16384])
    dims = [3 * 128 * heads for heads in (11, 16, 22, 32)]
    kinds = (torch.bfloat16, torch.float32)
    cases = [
        {"lengths": some, "dim": dim, "type": str(kind), "equal": conv_agrees(module, some, dim, "cuda", kind)}
        for some, dim, kind in itertools.product(lengths, dims, kinds)
    ]
    inputs = conv_inputs([16384], 6144, "cuda", torch.bfloat16)
    states = torch.zeros(2, 3, 6144, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    ours = grouped(module)

    def stock() -> list[torch.Tensor]:
        whole = module.causal_conv1d_fn(conv_states=states, **inputs).transpose(0, 1)
        return [part.contiguous() for part in whole.split(2048, dim=-1)]

    return {
        "cases": cases,
        "us": 1e6 * seconds_each([partial(ours, conv_states=states, **inputs, out_groups=3)]),
        "stock_with_copies_us": 1e6 * seconds_each([stock]),
        "stock_us": 1e6 * seconds_each([partial(module.causal_conv1d_fn, conv_states=states, **inputs)]),
    }


def stock_file(name: str) -> Path | None:
    """A file of the installed vLLM by its path in the package, without importing it; None where there is no vLLM."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / name


def stock_mhc() -> Any | None:
    """vLLM's fused mHC kernel, or None where vLLM or TileLang does not import."""
    try:
        return importlib.import_module("vllm.model_executor.kernels.mhc.tilelang_kernels")._MHC_FUSED_TILELANG_KERNEL
    except ImportError:
        return None


def mhc_case(tokens: int, hidden: int = 4096, splits: int = 8) -> dict[str, Any]:
    """Error, whether both weight types give the same bits, repeats, and us with the weights of all 90 steps in turn."""
    comb, residual, post, x, weight = random_inputs(tokens, hidden, "cuda", seed=tokens)
    short = fused_post_pre(comb, residual, post, x, weight, splits)
    wide = fused_post_pre(comb, residual, post, x, weight.float(), splits)
    right = mhc_reference(comb, residual, post, x, weight, splits)
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPEATS):
        differ += (fused_post_pre(comb, residual, post, x, weight, splits)[0] != short[0]).any()
    weights = [weight.clone() for _ in range(90)]
    calls = [partial(fused_post_pre, comb, residual, post, x, each, splits) for each in weights]
    wide_calls = [partial(fused_post_pre, comb, residual, post, x, each.float(), splits) for each in weights]
    by_tile = {tile: 1e6 * seconds_each([partial(call, tile=tile) for call in calls]) for tile in TILES}
    stock = stock_mhc()
    stock_us = None
    if stock is not None:
        stock_calls = [
            partial(stock, comb, residual, post, x, each.float(), 4, hidden, weight.shape[0]) for each in weights
        ]
        stock_us = 1e6 * seconds_each(stock_calls)
    return {
        "tokens": tokens, "error": max(_relative(a, b) for a, b in zip(short[:2], right[:2], strict=True)),
        "residual_error": _relative(short[2], right[2]), "repeats_that_differ": int(differ),
        "same_bits_from_fp32": all(bool(torch.equal(a, b)) for a, b in zip(short, wide, strict=True)),
        "us": 1e6 * seconds_each(calls), "us_by_tile": by_tile, "fp32_weight_us": 1e6 * seconds_each(wide_calls),
        "vllm_us": stock_us,
    }  # fmt: skip


def sanitize() -> int:
    """Small launches of sparse_mla, topk and mhc: rescan and not, split and not, ragged and empty."""
    for tokens, fp8 in itertools.product((1, 3, 270), (True, False)):
        kv = torch.randn(200, 512, device="cuda").to(torch.float8_e4m3fn if fp8 else torch.bfloat16)
        idx = torch.randint(0, 200, (tokens, 160), device="cuda", dtype=torch.int32)
        lens = torch.randint(0, 161, (tokens,), device="cuda", dtype=torch.int32)
        idx[torch.arange(160, device="cuda")[None] >= lens[:, None]] = -1
        sparse_mla(torch.randn(tokens, 11, 512, device="cuda").bfloat16(), kv, idx, lens, 0.06)
    for ties in (True, False):
        logits, ends = scores(9, 1300, ties=ties)
        out = torch.empty(9, K, dtype=torch.int32, device="cuda")
        refine_topk(logits, candidates(logits, ends, K + SPARE), torch.zeros_like(ends), ends, out)
    for tokens in (1, 17):
        fused_post_pre(*random_inputs(tokens, 1024, "cuda"), 8)
    torch.cuda.synchronize()
    print("sanitize: done")
    return 0


if __name__ == "__main__":
    sys.exit(sanitize())
