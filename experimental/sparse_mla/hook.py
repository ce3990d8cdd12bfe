"""Hook of sparse_mla: FlashInferMLASparseSM90's forward_mqa runs our kernel and its builder plans nothing.

Served: latent rows of 512 without a rope part, up to 64 heads, e4m3 or bf16 cache. Anything else runs as before.
"""

from __future__ import annotations

from typing import Any

import torch

from experimental.sparse_mla.launch import WIDTH, prepare_for, sparse_mla


def served(impl: Any) -> bool:
    """Whether our kernel serves this layer."""
    return (
        impl.kv_lora_rank == WIDTH
        and impl.qk_rope_head_dim == 0
        and impl.head_size == WIDTH
        and impl.num_heads <= 64
        and (impl.use_fp8_kv_cache or impl.kv_cache_dtype in ("auto", "bfloat16"))
    )


def register() -> None:
    """Wrap the backend's build and forward_mqa, once."""
    from vllm.v1.attention.backends.mla import flashinfer_mla_sparse_sm90 as backend
    from vllm.v1.attention.backends.mla.flashinfer_mla_sparse import FlashInferMLASparseMetadataBuilder

    builder, impl = backend.FlashInferMLASparseSM90Builder, backend.FlashInferMLASparseSM90Impl
    stock_build, stock_forward = builder.build, impl.forward_mqa
    if getattr(stock_build, "_glm53_sparse_mla", False):
        return

    def build(self: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        layer = self._attention_layer.impl
        if not served(layer):
            return stock_build(self, common_prefix_len, common_attn_metadata, fast_build)
        if self.state.device.type == "cuda":  # the same every time: compiled once, before any graph
            prepare_for(
                layer.num_heads, self.state.topk_width, self.state.device.index or 0, fp8=layer.use_fp8_kv_cache
            )
        metadata = FlashInferMLASparseMetadataBuilder.build(self, common_prefix_len, common_attn_metadata, fast_build)
        metadata.state = self.state
        return metadata

    def forward_mqa(
        self: Any, q: Any, kv_c_and_k_pe_cache: torch.Tensor, attn_metadata: Any, layer: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not served(self) or not isinstance(q, tuple):
            out: tuple[torch.Tensor, torch.Tensor | None] = stock_forward(
                self, q, kv_c_and_k_pe_cache, attn_metadata, layer
            )
            return out
        q_nope = q[0]
        tokens = q_nope.shape[0]
        topk_indices = self.topk_indices_buffer[:tokens]
        physical = {}
        if hasattr(backend, "flat_kv_row_view"):  # 0.32: other layers' pages lie between this cache's blocks
            rows, physical["BLOCK_STRIDE_ROWS"] = backend.flat_kv_row_view(
                kv_c_and_k_pe_cache, attn_metadata.block_size
            )
        else:
            rows = kv_c_and_k_pe_cache.reshape(-1, WIDTH)
        slots, counts = backend.triton_convert_req_index_to_global_index(
            attn_metadata.req_id_per_token[:tokens],
            attn_metadata.block_table,
            topk_indices,
            BLOCK_SIZE=attn_metadata.block_size,
            NUM_TOPK_TOKENS=topk_indices.shape[1],
            return_valid_counts=True,
            **physical,
        )
        scale = float(layer._k_scale_float or 1.0) if self.use_fp8_kv_cache else 1.0
        return sparse_mla(q_nope, rows, slots, counts, self.scale, scale), None

    build._glm53_sparse_mla = True  # type: ignore[attr-defined]
    builder.build, impl.forward_mqa = build, forward_mqa
