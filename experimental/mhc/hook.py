"""Hook of mhc: vLLM's fused post and pre step for few tokens reads a bf16 copy of its weight, in our kernel.

After loading, each layer's `hc_attn_fn` and `hc_ffn_fn` is probed. One that bf16 holds bit for bit gets a copy; one
that it does not is named in the log and stays with vLLM's kernel. The fp32 weight stays: more than 32 tokens use it.
A weight written anew in place after loading would leave its copy behind: reload the model, or turn the overlay off.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakValueDictionary

import torch

from experimental.edit import when_imported
from experimental.mhc.launch import MIXES, STREAMS, fused_post_pre, lost, prepare_for

logger = logging.getLogger("vllm.glm53")
WEIGHTS = ("hc_attn_fn", "hc_ffn_fn")
# Address of an fp32 weight -> its bf16 copy, which lives as long as its layer does.
COPIES: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()


def unsuited(weight: torch.Tensor) -> str | None:
    """Why a weight stays as it is, or None when bf16 holds it exactly and the kernel takes its shape."""
    if weight.dtype != torch.float32 or weight.shape[0] != MIXES or weight.shape[1] % (16 * STREAMS):
        return f"{weight.dtype} {tuple(weight.shape)} is not what the kernel takes"
    values = lost(weight)
    return f"bf16 does not hold {values} of {weight.numel()} values" if values else None


def keep_copies(model: torch.nn.Module) -> int:
    """Give every suited weight of a loaded model its copy and name the others in the log; how many copies there are."""
    made = 0
    for name, layer in model.named_modules():
        for place in WEIGHTS:
            weight = getattr(layer, place, None)
            if not isinstance(weight, torch.Tensor):
                continue
            reason = unsuited(weight.data)
            if reason:
                logger.warning("glm53 overlay mhc: %s.%s stays fp32: %s", name, place, reason)
                continue
            copy = weight.data.bfloat16().contiguous()
            setattr(layer, f"_glm53_{place}_bf16", copy)
            COPIES[weight.data_ptr()] = copy
            made += 1
            if weight.is_cuda:
                prepare_for(weight.device.index or 0)
    return made


def apply(kernels: Any) -> None:
    """Wrap MhcFusedTileLangKernel.__call__ of the module once."""
    owner = kernels.MhcFusedTileLangKernel
    stock = owner.__call__
    if getattr(stock, "_glm53_mhc", False):
        return

    def call(
        self: Any,
        comb_mix: Any,
        residual_in: Any,
        post_mix: Any,
        x_in: Any,
        weight_t: Any,
        hc_mult: int,
        hidden_size: int,
        hc_mult3: int,
    ) -> Any:
        # While vLLM warms up, these are not tensors.
        copy = COPIES.get(weight_t.data_ptr()) if isinstance(weight_t, torch.Tensor) else None
        if copy is None:
            return stock(self, comb_mix, residual_in, post_mix, x_in, weight_t, hc_mult, hidden_size, hc_mult3)
        _, splits, _ = kernels.require_fused_post_pre_config(residual_in.shape[0], hidden_size, hc_mult)
        return fused_post_pre(comb_mix, residual_in, post_mix, x_in, copy, splits)

    call._glm53_mhc = True  # type: ignore[attr-defined]
    owner.__call__ = call


def register() -> None:
    """Wrap BaseModelLoader.load_model once, and the fused kernel when its module is imported."""
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    when_imported("vllm.model_executor.kernels.mhc.tilelang_kernels", apply)
    stock = BaseModelLoader.load_model
    if getattr(BaseModelLoader, "_glm53_mhc", False):
        return

    def load_model(self: Any, *arguments: Any, **named: Any) -> torch.nn.Module:
        model: torch.nn.Module = stock(self, *arguments, **named)
        logger.info("glm53 overlay mhc: %d weights are read as bf16", keep_copies(model))
        return model

    BaseModelLoader.load_model = load_model
    BaseModelLoader._glm53_mhc = True
