"""The hidden vector that stands between two layers of the target model, for the drafter.

Installed into the vllm package by the patch `aux-hidden-states` (bases before 0.32.0).
"""

from __future__ import annotations

from typing import Any

import torch


def completed_stream(
    layer: Any,
    hidden_states: torch.Tensor,
    residual: torch.Tensor | None,
    post: torch.Tensor | None,
    comb: torch.Tensor | None,
) -> torch.Tensor:
    """The stream entering `layer`, [tokens, hidden].

    A layer with hyper-connections hands its `hc_post` on to the next layer's fused kernel, so what lies between them
    is (output, streams, post, comb); completing it with the next layer's own op and contracting the n streams gives
    the vector the drafter was trained on. hidden + residual would load as well, and lower the acceptance.
    """
    if post is None:
        return hidden_states
    from vllm.model_executor.layers.mhc import hc_contract

    return hc_contract(layer.hc_post(hidden_states, residual, post, comb), layer.n)
