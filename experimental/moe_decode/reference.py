"""What moe_decode computes, in plain torch: dequantise, multiply, clamp, weigh, add."""

from __future__ import annotations

import torch

from experimental.moe_decode.launch import Experts
from experimental.nvfp4.layout import dequantise, unswizzle


def moe(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: Experts, *, limit: float, scaling: float
) -> torch.Tensor:
    """fp64 [M, H]; an id of -1 contributes nothing."""
    half = layer.intermediate
    out = torch.zeros(len(ids), layer.hidden, dtype=torch.float64, device=x.device)
    for expert in sorted(set(ids.flatten().tolist()) - {-1}):
        s13 = unswizzle(layer.s13[expert][None], 2 * half, layer.hidden // 16)[0]
        s2 = unswizzle(layer.s2[expert][None], layer.hidden, half // 16)[0]
        w13 = dequantise(layer.w13[expert], s13, 1.0).double()
        w2 = dequantise(layer.w2[expert], s2, 1.0).double() * layer.down[expert].double()
        for token, choice in (ids == expert).nonzero().tolist():
            up, gate = (w13 @ x[token].double()).split(half)
            up = (up * layer.up[expert].double()).clamp(-limit, limit)
            gate = (gate * layer.gate[expert].double()).clamp(max=limit)
            hidden = torch.nn.functional.silu(gate) * up
            out[token] += w2 @ hidden * (weights[token, choice].double() * scaling)
    return out


def random_experts(experts: int, hidden: int, intermediate: int, device: str, seed: int = 0) -> Experts:
    """Experts with random codes and scales of realistic size, in the backend's layout."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def codes(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=rng)

    def scales(rows: int, blocks: int) -> torch.Tensor:
        rows = -(-rows // 128) * 128
        return torch.randint(0x28, 0x68, (experts, rows, blocks), dtype=torch.uint8, device=device, generator=rng)

    def globals_() -> torch.Tensor:
        return (torch.rand(experts, device=device, generator=rng) + 0.5) * 2e-3

    return Experts(
        codes(experts, 2 * intermediate, hidden // 2),
        scales(2 * intermediate, hidden // 16),
        globals_(),
        globals_(),
        codes(experts, hidden, intermediate // 2),
        scales(hidden, intermediate // 16),
        globals_(),
    )
