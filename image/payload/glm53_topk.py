"""The indexer's pools, the same ones in the same order on every call. Installed by the patch `deterministic-topk`.

vLLM's kernels give the right pools in a run-dependent order, and a run-dependent subset of those that tie at the cut.
Here they propose k + 32 candidates and glm53_topk_kernel.py (the overlay topk's kernel, one text for both) chooses:
ties go to the lowest ids, ids come out ascending. DETERMINISTIC_TOPK=0 leaves vLLM's choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
from vllm.glm53_topk_kernel import refine
from vllm.logger import init_logger

logger = init_logger(__name__)
# Candidates asked for beyond k: enough that a rescan is rare with real scores.
SPARE = 32
# Columns a rescan reads at a time.
SCAN = 1024
# Decode backends whose place the per-row kernel takes; another one was asked for by name and stays.
OURS = ("auto", "per_row")


def on() -> bool:
    """Whether the switch is on."""
    return os.environ.get("DETERMINISTIC_TOPK", "") != "0"


@cache
def _kernel() -> Any:
    """The kernel, not specialised on any value: one compilation serves every width and every view."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return refine
    pointers = ("logits_ptr", "candidates_ptr", "starts_ptr", "ends_ptr", "out_ptr")
    numbers = ("stride_logits", "stride_candidates", "stride_out", "count", "k")
    return triton.jit(refine.fn, do_not_specialize=numbers, do_not_specialize_on_alignment=pointers)


def choose(
    logits: torch.Tensor, candidates: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, out: torch.Tensor
) -> None:
    """Write the top-k of every row into `out` [rows, k] int32, ascending, -1 last; arguments as in the kernel."""
    rows, k = out.shape
    count = candidates.shape[1]
    if rows:
        _kernel()[(rows,)](
            logits, candidates, starts, ends, out, logits.stride(0), candidates.stride(0), out.stride(0), count, k,
            C=max(16, 1 << (count - 1).bit_length()), SCAN=SCAN, num_warps=4,
        )  # fmt: skip


def top_k_per_row_prefill(
    logits: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    out: torch.Tensor,
    rows: int,
    stride_row: int,
    stride_column: int,
    k: int,
) -> None:
    """In place of vLLM's kernel of this name: the same arguments, ids ascending, ties to the lowest."""
    if not on():
        torch.ops._C.top_k_per_row_prefill(logits, starts, ends, out, rows, stride_row, stride_column, k)
        return
    candidates = torch.full((rows, k + SPARE), -1, dtype=torch.int32, device=logits.device)
    torch.ops._C.top_k_per_row_prefill(logits, starts, ends, candidates, rows, stride_row, stride_column, k + SPARE)
    choose(logits, candidates, starts, ends, out[:rows])


def row_ends(seq_lens: torch.Tensor, next_n: int, rows: int) -> torch.Tensor:
    """int32 [rows]: pools of each row. seq_lens holds one number a row, or one a request of `next_n` rows."""
    if seq_lens.numel() == rows:
        return seq_lens.reshape(-1).contiguous()
    steps = torch.arange(next_n, dtype=torch.int32, device=seq_lens.device)
    return (seq_lens.reshape(-1, 1) - next_n + 1 + steps).clamp_(min=0).reshape(-1)


def decode_topk(logits: torch.Tensor, seq_lens: torch.Tensor, next_n: int, out: torch.Tensor, k: int) -> bool:
    """The same for decode rows; False, and nothing done, when the switch is off."""
    if not on():
        return False
    rows = logits.shape[0]
    candidates = torch.full((rows, k + SPARE), -1, dtype=torch.int32, device=logits.device)
    torch.ops._C.top_k_per_row_decode(
        logits, next_n, seq_lens, candidates, rows, logits.stride(0), logits.stride(1), k + SPARE
    )
    ends = row_ends(seq_lens, next_n, rows)
    choose(logits, candidates, torch.zeros_like(ends), ends, out[:rows])
    return True


@cache
def _stays(backend: str) -> bool:
    """Whether a decode backend keeps its own choice; says so once."""
    if backend in OURS:
        return False
    logger.warning("glm53: the indexer's decode keeps backend %s, which is not deterministic", backend)
    return True


def choosing(stock: Any) -> Callable[..., None]:
    """`stock` (vLLM's SparseIndexerTopk) as it is when its backend was asked for by name, else our choice."""

    def run(
        logits: torch.Tensor,
        seq_lens: torch.Tensor,
        next_n: int,
        topk_indices: torch.Tensor,
        topk_tokens: int,
        max_seq_len: int,
    ) -> None:
        if _stays(stock._backend) or not decode_topk(logits, seq_lens, next_n, topk_indices, topk_tokens):
            stock(logits, seq_lens, next_n, topk_indices, topk_tokens, max_seq_len)

    return run
