"""Hook of dense_w4: layers named by a pattern keep a 4-bit copy for few tokens beside dense_fp8's for many.

It has no hook of its own in vLLM: dense_fp8 converts the loaded model and asks this overlay for each layer first.
"""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from experimental.dense_fp8 import hook as dense_fp8
from experimental.dense_w4.launch import MAX_TOKENS, PAD, arrange, prepare_for, product, shape_for
from experimental.nvfp4.kernel import UNSCALE
from experimental.nvfp4.layout import quantise

PREFIX = "GLM53_OVERLAY_DENSE_W4"
# KDA input projections, output projections, shared experts; lm_head only when the pattern names it.
PATTERN = r"in_proj_qkvbfg_a$|(^|\.)o_proj$|shared_experts\.(gate_up_proj|down_proj)$"


class W4Method:
    """A linear method: NVFP4 weights for up to `limit` tokens, else the FP8 copy."""

    def __init__(self, weight: torch.Tensor, many: dense_fp8.Fp8Method, limit: int) -> None:
        self.rows, self.k = weight.shape
        self.many, self.limit = many, limit
        missing = -self.rows % PAD
        padded = torch.cat((weight, weight.new_zeros(missing, self.k))) if missing else weight
        made = quantise(padded)
        self.words, self.pairs = arrange(made.packed, made.scales)
        self.alpha = (made.scale_2 * UNSCALE["bf16"]).reshape(1)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """x @ w.T (+ bias), by the number of tokens."""
        rows = x.reshape(-1, self.k)
        tokens = rows.shape[0]
        if not 0 < tokens <= self.limit:
            return self.many.apply(layer, x, bias)
        out = torch.empty(tokens, self.rows, dtype=x.dtype, device=x.device)
        product(rows.contiguous(), self.words, self.pairs, self.alpha, out, shape_for(self.rows, self.k, tokens))
        out = out.reshape(*x.shape[:-1], self.rows)
        return out if bias is None else out + bias


def choice(pattern: str, limit: int) -> dense_fp8.Choice:
    """Names found by `pattern` become W4Method."""

    def choose(name: str, weight: torch.Tensor, fp8: dense_fp8.Fp8Method) -> Any:
        if not re.search(pattern, name):
            return None
        if weight.is_cuda:
            rows, k = weight.shape
            prepare_for(rows, k, weight.device.index or 0)
        return W4Method(weight, fp8, limit)

    choose._glm53_dense_w4 = True  # type: ignore[attr-defined]
    return choose


def register() -> None:
    """Add this overlay's choice once."""
    if any(getattr(known, "_glm53_dense_w4", False) for known in dense_fp8.CHOICES):
        return
    pattern = os.environ.get(f"{PREFIX}_PATTERN") or PATTERN
    limit = int(os.environ.get(f"{PREFIX}_MAX_TOKENS") or 32)
    dense_fp8.CHOICES.append(choice(pattern, min(limit, MAX_TOKENS)))
