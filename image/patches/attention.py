"""What else the sparse MLA backends need: the planned dtype of an fp8 cache, and a switch for an outside plugin."""

from __future__ import annotations

from image.patches.expect import RECIPE, fixed, needed
from image.patches.sm121 import CUDA, SM90
from image.patching import Addition, Edit, Patch, Variant, Witness

PATCHES = (
    Patch(
        name="fp8-kv-plan-dtype",
        title="plan an fp8 KV cache as e4m3, not as its storage dtype",
        why="the cache is stored as uint8; FlashInfer's plan() refuses that in the first dummy run",
        upstream="vllm#55222, in 0.32.0",
        origin=RECIPE,
        variants=(
            Variant(
                "0.30.0-0.31.0",
                (
                    Edit(
                        SM90,
                        "FlashInferMLASparseSM90Builder.__init__",
                        "            impl.num_heads,\n            kv_cache_spec.dtype,\n",
                        "            impl.num_heads,\n"
                        "            # glm53: uint8 is how an fp8 cache is stored, e4m3 is what it holds\n"
                        "            torch.float8_e4m3fn\n"
                        "            if kv_cache_spec.dtype == torch.uint8\n"
                        "            else kv_cache_spec.dtype,\n",
                    ),
                ),
            ),
        ),
        fixed=(
            Witness(
                SM90,
                "FlashInferMLASparseSM90Builder.__init__",
                "            if kv_cache_spec.dtype == torch.uint8\n            else kv_cache_spec.dtype\n",
            ),
        ),
        expected={**needed("0.30.0", "0.31.0"), **fixed("0.32.0", "0.33.0")},
    ),
    Patch(
        name="attention-plugin-switch",
        title="VLLM_GLM53_CUDA_SPARSE_MLA hands the SM120 slot to an outside plugin",
        why="the SM90 entry would silently be chosen before a plugin that overrides the SM120 backend",
        upstream="not a matter for upstream: it undoes sm121-backend-list on request",
        origin=RECIPE,
        variants=(
            Variant(
                "0.30.0-0.33.0",
                (
                    Edit(
                        CUDA,
                        "_get_backend_priorities",
                        "        elif device_capability.major == 12:\n",
                        "        elif device_capability.major == 12 and _glm53_plugin_wanted():\n"
                        "            sm120 = AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120\n"
                        "            return [AttentionBackendEnum.TRITON_MLA, sm120]\n"
                        "        elif device_capability.major == 12:\n",
                    ),
                    Edit(
                        CUDA,
                        "module",
                        "import torch\nfrom torch.distributed import PrefixStore, ProcessGroup\n",
                        "import torch\n"
                        "from torch.distributed import PrefixStore, ProcessGroup\n"
                        "\n"
                        "from vllm.glm53_attention_plugin import wanted as _glm53_plugin_wanted\n",
                    ),
                ),
                (Addition("vllm/glm53_attention_plugin.py", "payload/glm53_attention_plugin.py"),),
            ),
        ),
        expected=needed(),
    ),
)
