"""vLLM's causal_conv1d_fn with grouped dense outputs, made from its own source by anchored edits.

Feature f goes to out[f // G][token][f % G] with G = features / groups; everything else, the arithmetic and the state
cache among it, is the stock code, so each output is bit for bit the stock output's slice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from experimental.edit import twin

KERNEL = "_causal_conv1d_fwd_kernel"
LAUNCHER = "causal_conv1d_fn"
KERNEL_EDITS = (
    (
        "    stride_o_token: tl.int64,\n",
        "    stride_o_token: tl.int64,\n    stride_o_group: tl.int64,\n    OUT_GROUP: tl.constexpr,\n",
    ),
    (
        "            + (idx_feats * stride_o_dim)\n        )\n",
        "            + (idx_feats // OUT_GROUP) * stride_o_group\n"
        "            + (idx_feats % OUT_GROUP) * stride_o_dim\n        )\n",
    ),
)
LAUNCHER_EDITS = (
    ("    validate_data=False,\n):", "    validate_data=False,\n    *,\n    out_groups,\n):"),
    (
        "    out = torch.empty_like(x)\n",
        "    out = torch.empty((out_groups, x.shape[1], x.shape[0] // out_groups), dtype=x.dtype, device=x.device)\n",
    ),
    (
        "        stride_o_dim = out.stride(1)\n        stride_o_token = out.stride(2)\n",
        "        stride_o_dim = out.stride(2)\n        stride_o_token = out.stride(1)\n",
    ),
    (
        "        stride_o_token,\n        block_size_to_align // BLOCK_M,\n",
        "        stride_o_token,\n        out.stride(0),\n        dim // out_groups,\n"
        "        block_size_to_align // BLOCK_M,\n",
    ),
)


def grouped(module: Any) -> Callable[..., torch.Tensor]:
    """The grouped twin of `module`.causal_conv1d_fn: the same arguments and `out_groups`, output [groups, T, G].

    `module` is vllm.model_executor.layers.mamba.ops.causal_conv1d. Raises AnchorError for another source.
    """
    stock = getattr(module, KERNEL)
    kernel = twin(module, inspect.getsource(getattr(stock, "fn", stock)), KERNEL_EDITS, KERNEL, {})
    source = inspect.getsource(getattr(module, LAUNCHER))
    made: Callable[..., torch.Tensor] = twin(module, source, LAUNCHER_EDITS, LAUNCHER, {KERNEL: kernel})
    return made
