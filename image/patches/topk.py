"""The pools that the indexer keeps, the same on every call; before the merge over context-parallel ranks."""

from __future__ import annotations

from image.patches.expect import RECIPE, needed
from image.patches.sm121 import INDEXER, INDEXER_0_30
from image.patching import Addition, Edit, Patch, Variant

SCOPE = "sparse_attn_indexer_kpool"
ADDITIONS = (
    Addition("vllm/glm53_topk.py", "payload/glm53_topk.py"),
    Addition("vllm/glm53_topk_kernel.py", "payload/glm53_topk_kernel.py"),
)


def _prefill(file: str, indent: str, starts: str) -> Edit:
    return Edit(
        file,
        SCOPE,
        f"{indent}torch.ops._C.top_k_per_row_prefill(\n{indent}    logits,\n{indent}    {starts},\n",
        f"{indent}# glm53: the same pools in the same order on every call; DETERMINISTIC_TOPK=0 leaves vLLM's choice\n"
        f"{indent}from vllm.glm53_topk import top_k_per_row_prefill\n"
        "\n"
        f"{indent}top_k_per_row_prefill(\n{indent}    logits,\n{indent}    {starts},\n",
    )


DECODE = Edit(
    INDEXER,
    SCOPE,
    "        get_indexer_topk(topk_backend)(\n            logits,\n            seq_lens,\n",
    "        # glm53: the same for decode, unless another backend was asked for by name\n"
    "        from vllm.glm53_topk import choosing\n"
    "\n"
    "        choosing(get_indexer_topk(topk_backend))(\n            logits,\n            seq_lens,\n",
)
DECODE_0_30 = Edit(
    INDEXER_0_30,
    SCOPE,
    "            torch.ops._C.persistent_topk(\n"
    "                logits,\n"
    "                seq_lens,\n"
    "                topk_dst,\n"
    "                topk_workspace,\n"
    "                select_k,\n"
    "                attn_metadata_narrowed.max_seq_len,\n"
    "            )\n",
    "            # glm53: the same for decode\n"
    "            from vllm.glm53_topk import decode_topk\n"
    "\n"
    "            if not decode_topk(logits, seq_lens, next_n, topk_dst, select_k):\n"
    "                torch.ops._C.persistent_topk(\n"
    "                    logits,\n"
    "                    seq_lens,\n"
    "                    topk_dst,\n"
    "                    topk_workspace,\n"
    "                    select_k,\n"
    "                    attn_metadata_narrowed.max_seq_len,\n"
    "                )\n",
)

PATCH = Patch(
    name="deterministic-topk",
    title="choose the indexer's pools the same way every time",
    why="stock gives them in a run-dependent order, and a run-dependent subset of those that tie at the cut; sparse "
    "attention sums in that order, so identical requests past 2048 tokens drift apart",
    upstream="no deterministic choice in 0.30.0-0.33.0 (read)",
    origin=RECIPE,
    variants=(
        Variant("0.33.0", (_prefill(INDEXER, " " * 16, "torch.zeros_like(row_ends)"), DECODE), ADDITIONS),
        Variant("0.32.0", (_prefill(INDEXER, " " * 16, "cu_seqlen_ks"), DECODE), ADDITIONS),
        Variant("0.31.0", (_prefill(INDEXER, " " * 12, "chunk.cu_seqlen_ks"), DECODE), ADDITIONS),
        Variant("0.30.0", (_prefill(INDEXER_0_30, " " * 16, "chunk.cu_seqlen_ks"), DECODE_0_30), ADDITIONS),
    ),
    expected=needed(),
)
