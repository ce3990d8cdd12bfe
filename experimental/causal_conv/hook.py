"""Hook of causal_conv: KDA's prefill takes q, k and v from the grouped convolution; edited in memory."""

from __future__ import annotations

from typing import Any

from experimental.causal_conv.grouped import grouped
from experimental.edit import edit, when_imported

EDITS = (
    ("        qkv_ns = causal_conv1d_fn(\n", "        q_ns, k_ns, v_ns = _glm53_grouped_conv(\n"),
    (
        "            metadata=attn_metadata_narrowed,\n"
        "        ).transpose(0, 1)\n"
        "        q_ns, k_ns, v_ns = qkv_ns.split(self.local_projection_size, dim=-1)\n",
        "            metadata=attn_metadata_narrowed,\n            out_groups=3,\n        )\n",
    ),
)


def apply(kda: Any) -> None:
    """Edit Glm5NextLinearAttention._forward of the module."""
    from vllm.model_executor.layers.mamba.ops import causal_conv1d

    edit(kda.Glm5NextLinearAttention._forward, EDITS, {"_glm53_grouped_conv": grouped(causal_conv1d)})


def register() -> None:
    """Edit the layer when its module is imported."""
    when_imported("vllm.models.glm5next.common.kda", apply)
