"""Run inside a vLLM: pools of the GLM that vLLM's own grouping, layout and capacity code finds on hand-made specs.

    python vllm_pool.py '[{"tp": 4, "block": 2304, "pin": ..., "max_len": ..., "batch": ..., "recoverssm": true,
                           "drafter": true, "heads": 64, "draft_kv_heads": 8}]'

prints a line of JSON a case. Both layouts are known: 0.31's own grouper, 0.32's packed one. What depends on a GPU or a
loaded model (which layout, which draft layers share) is given, not asked for.
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.core import kv_cache_utils as utils

SPEC_TOKENS = 7
PACKED = not hasattr(interface, "KpoolTailSpec")


def specs(case: dict[str, Any]) -> dict[str, Any]:
    block, heads = case["block"], case["heads"] // case["tp"]
    common: dict[str, Any] = {"block_size": block, "num_kv_heads": 1}
    kda = interface.MambaSpec(
        block_size=block,
        shapes=((3 * heads * 128, 3 + SPEC_TOKENS), (heads, 128, 128)),
        dtypes=(torch.bfloat16, torch.float32),
        page_size_padded=block * 512 if PACKED else None,
        mamba_cache_mode="align",
        num_speculative_blocks=0 if case["recoverssm"] else SPEC_TOKENS,
        num_prefill_checkpoint_blocks=1 if PACKED else 0,
    )
    rows = {"block_stride_alignment": 512} if PACKED else {}
    mla = interface.MLAAttentionSpec(**common, head_size=512, dtype=torch.uint8, cache_dtype_str="fp8_e4m3", **rows)
    index = interface.MLAAttentionSpec(**common, head_size=132, dtype=torch.uint8, tokens_per_state=4)
    ring: dict[str, Any] = {"block_size": 16, "num_kv_heads": 2, "head_size": 128, "head_size_v": 0}
    ring |= {"dtype": torch.bfloat16, "dcp_sharded": False}
    tail = interface.CircularBufferSpec(**ring) if PACKED else interface.KpoolTailSpec(**ring, sliding_window=16)
    table: dict[str, Any] = {}
    for layer in range(45):
        if layer % 4 != 3:
            table[f"model.layers.{layer}.kda"] = kda
        else:
            table |= {
                f"model.layers.{layer}.{name}": spec for name, spec in (("mla", mla), ("index", index), ("tail", tail))
            }
    if case["drafter"]:
        draft = interface.SlidingWindowSpec(
            block_size=block,
            num_kv_heads=case["draft_kv_heads"] // case["tp"],
            head_size=128,
            dtype=torch.float8_e4m3fn,
            sliding_window=2048,
        )
        table |= {f"draft.layers.{layer}": draft for layer in range(5)}
    return table


def configuration(case: dict[str, Any]) -> Any:
    layout = interface.KVCacheLayout.BLHNC if PACKED else None
    return SimpleNamespace(
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: layout,
            num_gpu_blocks_override=None,
            mamba_cache_mode="align",
            prefix_cache_retention_interval=None,
        ),
        model_config=SimpleNamespace(max_model_len=case["max_len"]),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, pipeline_parallel_size=1),
        attention_config=SimpleNamespace(hisparse_config=None),
        max_in_flight_tokens=2 * case["batch"],  # asynchronous scheduling
    )


def main() -> None:
    utils._annotate_eagle_groups = lambda *_, **__: None
    utils._warn_if_unannotated_eagle_mamba = lambda *_, **__: None
    utils._uses_trailing_mtp_layers = lambda *_, **__: False
    group = utils._get_packed_kv_cache_groups if PACKED else utils._get_kv_cache_groups_glm5_next
    for case in json.loads(sys.argv[1]):
        config = configuration(case)
        found = utils.get_kv_cache_config_from_groups(config, group(config, specs(case)), case["pin"])
        tokens, _ = utils.get_kv_cache_capacity(config, found)
        print(json.dumps({"tokens": tokens, "blocks": found.num_blocks}), flush=True)


if __name__ == "__main__":
    main()
