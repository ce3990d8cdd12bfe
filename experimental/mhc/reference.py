"""What mhc computes, in plain torch."""

from __future__ import annotations

import torch


def reference(
    comb: torch.Tensor,
    residual: torch.Tensor,
    post: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    splits: int,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(mixes [splits, T, 24], squares [splits, T], new residual [T, 4, H] not rounded), in `dtype` throughout."""
    tokens, streams, hidden = residual.shape
    new = (
        torch.einsum("tkj,tkh->tjh", comb.to(dtype), residual.to(dtype))
        + post.to(dtype)[:, :, None] * x.to(dtype)[:, None]
    )
    parts = new.view(tokens, streams, splits, hidden // splits)
    weights = weight.to(dtype).view(-1, streams, splits, hidden // splits)
    return torch.einsum("njsh,tjsh->stn", weights, parts), parts.square().sum((1, 3)).T.contiguous(), new


def random_inputs(
    tokens: int, hidden: int, device: str, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """comb, residual, post, x and a bf16 weight of realistic sizes."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device)

    comb = torch.softmax(normal(tokens, 4, 4), dim=-1)
    return (
        comb,
        normal(tokens, 4, hidden).bfloat16(),
        2 * torch.sigmoid(normal(tokens, 4)),
        normal(tokens, hidden).bfloat16(),
        (normal(24, 4, hidden) / 64).bfloat16(),
    )
