"""Hook of topk: the indexer's candidates come from vLLM's per-row kernel, the choice among them from ours.

Prefill: the one call of top_k_per_row_prefill in sparse_attn_indexer_kpool is edited in memory; 0.32's distributed
merge follows it and sees our choice. Decode: SparseIndexerTopk.forward, unless a backend other than auto or per_row is
asked for. In an image that has the patch deterministic-topk there is nothing to hook: it calls the same kernel.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import torch

from experimental.edit import edit, when_imported
from experimental.topk.launch import SPARE, prepare_for, refine_topk

logger = logging.getLogger("vllm.glm53")
OURS = ("auto", "per_row")
EDITS = (("torch.ops._C.top_k_per_row_prefill(", "_glm53_top_k_per_row_prefill("),)


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
    candidates = torch.full((rows, k + SPARE), -1, dtype=torch.int32, device=logits.device)
    torch.ops._C.top_k_per_row_prefill(logits, starts, ends, candidates, rows, stride_row, stride_column, k + SPARE)
    refine_topk(logits, candidates, starts, ends, out[:rows])


def register() -> None:
    """Edit the prefill call and wrap SparseIndexerTopk.forward, once; nothing where the image is patched."""
    if importlib.util.find_spec("vllm.glm53_topk") is not None:
        logger.info("glm53 overlay topk: this image's vLLM has the patch deterministic-topk; nothing to hook")
        return
    from vllm.model_executor.layers import indexer_topk

    when_imported(
        "vllm.models.glm5next.nvidia.sparse_indexer",
        lambda module: edit(
            module.sparse_attn_indexer_kpool, EDITS, {"_glm53_top_k_per_row_prefill": top_k_per_row_prefill}
        ),
    )
    choice = indexer_topk.SparseIndexerTopk
    stock = choice.forward
    if getattr(stock, "_glm53_topk", False):
        return

    def forward(
        self: Any,
        logits: torch.Tensor,
        seq_lens: torch.Tensor,
        next_n: int,
        topk_indices: torch.Tensor,
        topk_tokens: int,
        max_seq_len: int,
    ) -> None:
        if self._backend not in OURS:
            stock(self, logits, seq_lens, next_n, topk_indices, topk_tokens, max_seq_len)
            return
        rows = logits.shape[0]
        count = topk_tokens + SPARE
        candidates = torch.full((rows, count), -1, dtype=torch.int32, device=logits.device)
        indexer_topk.ops.top_k_per_row_decode(
            logits, next_n, seq_lens, candidates, rows, logits.stride(0), logits.stride(1), count
        )
        ends = self._row_ends(seq_lens, next_n, rows).contiguous()
        refine_topk(logits, candidates, torch.zeros_like(ends), ends, topk_indices[:rows])

    init = choice.__init__

    def prepared(self: Any, backend: str | None = None) -> None:
        init(self, backend)
        if self._backend not in OURS:
            logger.warning("glm53 overlay topk: decode keeps backend %s, which is not deterministic", self._backend)
        elif torch.cuda.is_available():
            prepare_for(512, torch.cuda.current_device())

    forward._glm53_topk = True  # type: ignore[attr-defined]
    choice.forward = forward
    choice.__init__ = prepared
