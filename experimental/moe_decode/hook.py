"""Hook of moe_decode: NVFP4 experts of the CUTLASS backend answer few tokens by our kernels, the rest by stock.

ModelOptNvFp4FusedMoE.process_weights_after_loading is wrapped to keep gate's and up's own globals before the backend
folds the input scale into one of them; apply is wrapped to dispatch by the number of tokens.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from experimental.launch import prepare
from experimental.moe_decode.launch import MAX_TOKENS, Experts, Workspace, moe, shape_for, variants, workspace

logger = logging.getLogger("vllm.glm53")
PREFIX = "GLM53_OVERLAY_MOE_DECODE"
LAYER = "_glm53_moe_decode"


class Decode:
    """One layer's experts with the scratch memory of each token count, kept so that graphs find it where it was."""

    def __init__(self, experts: Experts, limit: float, most: int) -> None:
        self.experts, self.limit, self.most = experts, limit, most
        self._spaces: dict[tuple[int, int], Workspace] = {}

    def __call__(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The routed experts' sum for x bf16 [M, H]; ids below 0 are skipped."""
        tokens, topk = ids.shape
        space = self._spaces.get((tokens, topk))
        if space is None:
            space = workspace(tokens, topk, self.experts.intermediate, x.device)
            self._spaces[tokens, topk] = space
        out = torch.empty_like(x)
        moe(
            x.contiguous(),
            ids.to(torch.int32).contiguous(),
            weights.float().contiguous(),
            self.experts,
            out,
            space,
            limit=self.limit,
            scaling=1.0,  # the router has applied it to the weights
            shape=shape_for(tokens),
        )
        return out


def suits(layer: Any, method: Any) -> str | None:
    """Why a layer is left to the stock backend, or None when it suits."""
    if getattr(method.nvfp4_backend, "name", "") != "FLASHINFER_CUTLASS":
        return f"backend {getattr(method.nvfp4_backend, 'name', method.nvfp4_backend)}"
    if layer.expert_map is not None:
        return "expert parallelism"
    if getattr(layer.activation, "name", "") != "SILU":
        return f"activation {layer.activation}"
    if layer.apply_router_weight_on_input:
        return "router weight on the input"
    if layer.w2_weight.shape[1] % 128 or layer.w2_weight.shape[2] * 2 % 128:
        return "sizes that are no multiple of 128"
    return None


def most_tokens() -> int:
    """Tokens up to which the kernels run."""
    return min(int(os.environ.get(f"{PREFIX}_MAX_TOKENS") or 16), MAX_TOKENS)


def register() -> None:
    """Wrap the two methods of ModelOptNvFp4FusedMoE once."""
    from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExpertsOrder
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4FusedMoE

    stock_process, stock_apply = ModelOptNvFp4FusedMoE.process_weights_after_loading, ModelOptNvFp4FusedMoE.apply
    if getattr(stock_apply, LAYER, False):
        return

    def process(self: Any, layer: Any) -> None:
        _reconciled(self, layer)
        gate, up = (layer.w13_weight_scale_2.data[:, side].float().clone() for side in (0, 1))
        down = layer.w2_weight_scale_2.data.float().clone()
        stock_process(self, layer)
        reason = suits(layer, self)
        if reason:
            logger.warning(
                "glm53 overlay moe_decode: %s stays stock: %s", getattr(layer, "layer_name", "a layer"), reason
            )
            return
        experts = Experts(
            layer.w13_weight.data.view(torch.uint8),
            layer.w13_weight_scale.data.view(torch.uint8),
            up,
            gate,
            layer.w2_weight.data.view(torch.uint8),
            layer.w2_weight_scale.data.view(torch.uint8),
            down,
        )
        clamp = getattr(layer, "swiglu_limit", None)
        decode = Decode(experts, float("inf") if clamp is None else float(clamp), most_tokens())
        setattr(layer, LAYER, decode)
        if layer.w2_weight.is_cuda:
            _prepare(layer, decode)

    def apply(
        self: Any, layer: Any, x: Any, topk_weights: Any, topk_ids: Any, shared_experts: Any, shared_experts_input: Any
    ) -> Any:
        decode = getattr(layer, LAYER, None)
        if decode is None or not 0 < x.shape[0] <= decode.most:
            return stock_apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input)
        if shared_experts is not None:  # runs them only when it was to be the backend's turn, as stock does
            shared_experts(shared_experts_input, SharedExpertsOrder.MK_INTERNAL_OVERLAPPED)
        return decode(x, topk_weights, topk_ids)

    setattr(apply, LAYER, True)
    ModelOptNvFp4FusedMoE.process_weights_after_loading = process
    ModelOptNvFp4FusedMoE.apply = apply


def _reconciled(method: Any, layer: Any) -> None:
    """Let an image that has the patch w13-global-scales do its work first: it rewrites block scales that we read too.

    It runs again inside vLLM's own processing and then finds nothing to do.
    """
    try:
        from vllm.glm53_fused_scales import reconcile
    except ModuleNotFoundError:
        return
    reconcile(layer, method.moe.is_act_and_mul)


def _prepare(layer: Any, decode: Decode) -> None:
    """Compile or load the kernels of every token count, before any request."""
    for tokens in steps(decode.most):
        shape = shape_for(tokens)
        for made in variants(decode.experts.hidden, layer.top_k, tokens, shape):
            prepare(made, layer.w2_weight.device.index or 0)


def steps(most: int) -> tuple[int, ...]:
    """Token counts that stand for all from 1 to `most`: powers of two, the last one no less than `most`."""
    return tuple(1 << n for n in range((most - 1).bit_length() + 1))
