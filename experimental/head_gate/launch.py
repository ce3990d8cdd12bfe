"""The head gate's product, and the same in fp64."""

from __future__ import annotations

import torch


def head_gate(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """hidden [T, K] x weight [heads, K] transposed, fp32 [T, heads].

    bf16 products are exact in fp32, so against the widened product only the order of summation changes. torch takes an
    output type on CUDA alone; elsewhere, and for other inputs, the inputs are widened.
    """
    if hidden.is_cuda and hidden.dtype == weight.dtype == torch.bfloat16:
        return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    return torch.mm(hidden.float(), weight.t().float())


def reference(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same in fp64."""
    return hidden.double() @ weight.double().t()
