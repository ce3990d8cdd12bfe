"""Hook of dense_fp8: after a model is loaded, its bf16 linear layers become FP8.

BaseModelLoader.load_model is wrapped; layers of UnquantizedLinearMethod whose name is not left out get a weight per
output channel. Up to MAX_TOKENS tokens the Triton kernel runs, beyond it vLLM's own scaled product (cutlass_scaled_mm).
dense_w4 adds its choice to CHOICES and is asked first.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

import torch

from experimental.dense_fp8.launch import MAX_TOKENS, PAD, prepare_for, product, quantise, quantise_weight, shape_for

logger = logging.getLogger("vllm.glm53")
PREFIX = "GLM53_OVERLAY_DENSE_FP8"
# Routers and what is read outside of a linear layer's forward, and the vision tower.
SKIP = r"(^|\.)(gate|kv_b_proj|wk_weights_proj|kpool_gate)$|visual|vision"

# Given a layer's name and its bf16 weight: the method that replaces FP8, or None. See dense_w4.
Choice = Callable[[str, torch.Tensor, "Fp8Method"], Any]
CHOICES: list[Choice] = []


class Fp8Method:
    """A linear method that holds its own weight: e4m3 [N padded, K], fp32 scale [N padded]."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.rows, self.k = weight.shape
        w, scale = quantise_weight(weight)
        missing = -self.rows % PAD
        if missing:  # zero rows, never stored: the kernel masks them, the large product trims them
            w = torch.cat((w.view(torch.uint8), w.new_zeros(missing, self.k, dtype=torch.uint8))).view(w.dtype)
            scale = torch.cat((scale, scale.new_ones(missing)))
        self.weight, self.scale = w.contiguous(), scale.contiguous()

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x @ w.T (+ bias), by the number of tokens: the kernel for few, vLLM's product for many."""
        rows = x.reshape(-1, self.k)
        out = self.small(rows) if 0 < rows.shape[0] <= MAX_TOKENS else self.large(rows)
        out = out.reshape(*x.shape[:-1], self.rows)
        return out if bias is None else out + bias

    def small(self, x: torch.Tensor) -> torch.Tensor:
        """[M, N] by the Triton kernels."""
        x8 = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        out = torch.empty(x.shape[0], self.rows, dtype=x.dtype, device=x.device)
        quantise(x.contiguous(), x8, scale)
        product(x8, scale, self.weight, self.scale, out, shape_for(self.rows, x.shape[0]))
        return out

    def large(self, x: torch.Tensor) -> torch.Tensor:
        """[M, N] by vLLM's cutlass_scaled_mm, in calls of 2048 rows (reported faster on GB10 for large weights)."""
        from vllm import _custom_ops as ops

        parts = []
        for piece in x.split(2048):
            x8, scale = ops.scaled_fp8_quant(piece.contiguous(), use_per_token_if_dynamic=True)
            parts.append(ops.cutlass_scaled_mm(x8, self.weight.t(), scale, self.scale[:, None], out_dtype=x.dtype))
        whole = torch.cat(parts) if parts else x.new_empty(0, self.weight.shape[0])
        return whole[:, : self.rows]


def chosen(name: str, weight: torch.Tensor, skip: str = SKIP) -> bool:
    """Whether a bf16 layer of this name and weight is converted."""
    return (
        weight.dim() == 2
        and weight.dtype == torch.bfloat16
        and weight.shape[1] % 128 == 0
        and not re.search(skip, name)
    )


def convert(model: torch.nn.Module, linear: Any, unquantised: tuple[type, ...], skip: str = SKIP) -> dict[str, int]:
    """Replace the methods of `linear` layers whose method is one of `unquantised`; how many of each kind were made.

    The bf16 weight is freed: what reads `layer.weight` directly must be in `skip`.
    """
    made: dict[str, int] = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, linear) or not isinstance(layer.quant_method, unquantised):
            continue
        weight = getattr(layer, "weight", None)
        if weight is None or not chosen(name, weight, skip):
            continue
        fp8 = Fp8Method(weight.data)
        method = next((found for choice in CHOICES if (found := choice(name, weight.data, fp8)) is not None), fp8)
        layer.quant_method = method
        layer.weight.data = weight.data.new_empty(0, weight.shape[1])
        made[type(method).__name__] = made.get(type(method).__name__, 0) + 1
        if weight.is_cuda:
            prepare_for(fp8.rows, fp8.k, weight.device.index or 0)
    return made


def register() -> None:
    """Wrap BaseModelLoader.load_model once."""
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    stock = BaseModelLoader.load_model
    if getattr(stock, "_glm53_dense_fp8", False):
        return
    skip = os.environ.get(f"{PREFIX}_SKIP") or SKIP

    def load_model(self: Any, *arguments: Any, **named: Any) -> torch.nn.Module:
        model: torch.nn.Module = stock(self, *arguments, **named)
        made = convert(model, LinearBase, (UnquantizedLinearMethod,), skip)
        if os.environ.get(f"{PREFIX}_LM_HEAD", "0") == "1":
            made |= convert(model, ParallelLMHead, (UnquantizedEmbeddingMethod,), skip)
        logger.info(
            "glm53 overlay dense_fp8: %s", ", ".join(f"{count} {kind}" for kind, count in made.items()) or "none"
        )
        return model

    load_model._glm53_dense_fp8 = True  # type: ignore[attr-defined]
    BaseModelLoader.load_model = load_model
