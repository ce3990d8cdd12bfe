"""The model's KV cache at TP=4, block 2304, fp8, k=7, in vLLM's own specs."""

from types import SimpleNamespace
from typing import Any

import torch
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.attention.backends.mla.indexer import KpoolTailBackend
from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec, SlidingWindowSpec

BLOCK, RING = 2304, 16
MLA_PAGE, INDEX_PAGE, DRAFT_PAGE = 2304 * 512, 2304 // 4 * 132, 2304 * 2 * 128 * 2
MODEL = 11 * (MLA_PAGE + INDEX_PAGE)


def specs(*, drafter: bool) -> dict[str, Any]:
    """Layers as the model registers them: 45 of which every fourth is MLA, then the five of the drafter."""
    shapes = MambaStateShapeCalculator.kda_state_shape(4, 64, 128, conv_kernel_size=4, num_spec=7)
    kda = MambaSpec(
        block_size=BLOCK,
        shapes=shapes,
        dtypes=(torch.bfloat16, torch.float32),
        mamba_cache_mode="align",
        num_speculative_blocks=7,
    )
    mla = MLAAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=512, dtype=torch.uint8, cache_dtype_str="fp8_e4m3"
    )
    index = MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=132, dtype=torch.uint8, tokens_per_state=4)
    sliding = {"sliding_window": RING} if hasattr(interface, "KpoolTailSpec") else {}
    tail_spec = getattr(interface, "KpoolTailSpec", None) or interface.CircularBufferSpec
    tail = tail_spec(block_size=RING, num_kv_heads=2, head_size=128, head_size_v=0, dtype=torch.bfloat16, **sliding)
    found: dict[str, Any] = {}
    for layer in range(45):
        name = f"model.layers.{layer}.self_attn"
        if layer % 4 == 3:
            found |= {f"{name}.attn": mla, f"{name}.indexer.k_cache": index, f"{name}.indexer.tail_cache": tail}
        else:
            found[name] = kda
    if drafter:
        window = SlidingWindowSpec(
            block_size=BLOCK, num_kv_heads=2, head_size=128, dtype=torch.uint8, sliding_window=2048
        )
        found |= {f"draft.layers.{layer}.self_attn.attn": window for layer in range(45, 50)}
    return found


def config(pipeline: int = 1) -> Any:
    """The parts of a VllmConfig that grouping reads; the layout is the one the tail's backend asks for."""
    (layout,) = KpoolTailBackend.supported_kv_cache_layouts()
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=pipeline, decode_context_parallel_size=1, tensor_parallel_size=4
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=8192),
        cache_config=SimpleNamespace(
            mamba_cache_mode="align",
            block_size=BLOCK,
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            enable_prefix_caching=True,
            prefix_match_unit=None,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        model_config=SimpleNamespace(max_model_len=262144, original_max_model_len=262144),
        speculative_config=None,
        kv_transfer_config=None,
        max_in_flight_tokens=8192,
        num_prefill_lookahead_tokens=0,
    )
