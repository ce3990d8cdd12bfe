"""NVFP4 in torch: codes, packing, quantising, the 128x4 swizzle of block scales, and the globals.

A value is e2m1 (sign, two exponent bits, one mantissa bit); two share a byte, even k in the low nibble. 16 values
along k share an e4m3 scale, a tensor shares one fp32 global: value = e2m1 * e4m3 * global. Scales travel as uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

BLOCK = 16
E2M1_MAX = 6.0
E4M3_MAX = 448.0
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@dataclass(frozen=True)
class Quantised:
    """packed uint8 [N, K/2], scales uint8 (e4m3) [N, K/16] row by row, one fp32 global."""

    packed: torch.Tensor
    scales: torch.Tensor
    scale_2: torch.Tensor


def encode(values: torch.Tensor) -> torch.Tensor:
    """Nearest e2m1 codes (uint8, 0-15), ties to the even code, beyond 6 saturated."""
    size = values.abs()
    code = torch.zeros_like(values, dtype=torch.uint8)
    for bound, tie_goes_up in ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        code += (size >= bound) if tie_goes_up else (size > bound)
    return code + torch.signbit(values).to(torch.uint8) * 8


def decode(codes: torch.Tensor) -> torch.Tensor:
    """fp32 values of e2m1 codes."""
    return _values(codes.device)[codes.long()]


@cache
def _values(device: torch.device) -> torch.Tensor:
    """The table on a device, made once: a copy from the host cannot be captured in a graph."""
    return torch.tensor(VALUES, dtype=torch.float32, device=device)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """[..., K] codes to [..., K/2] bytes, even k in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """[..., K/2] bytes to [..., K] codes."""
    return torch.stack((packed & 0xF, packed >> 4), -1).flatten(-2)


def quantise(weight: torch.Tensor) -> Quantised:
    """Round to nearest: global = amax / (6 * 448), block scale = block amax / 6 / global in e4m3."""
    rows, k = weight.shape
    if k % BLOCK:
        raise ValueError(f"K={k} is no multiple of {BLOCK}")
    wide = weight.float()
    amax = wide.abs().amax()
    scale_2 = torch.where(amax > 0, amax / (E2M1_MAX * E4M3_MAX), torch.ones_like(amax))
    blocks = wide.reshape(rows, k // BLOCK, BLOCK)
    scales = (blocks.abs().amax(-1) / E2M1_MAX / scale_2).clamp(max=E4M3_MAX).to(torch.float8_e4m3fn)
    step = (scales.float() * scale_2).unsqueeze(-1)
    codes = encode(torch.where(step > 0, blocks / step, torch.zeros_like(blocks)))
    return Quantised(pack(codes.reshape(rows, k)), scales.view(torch.uint8), scale_2)


def dequantise(packed: torch.Tensor, scales: torch.Tensor, scale_2: torch.Tensor | float) -> torch.Tensor:
    """fp32 [..., N, K] from packed [..., N, K/2] and scales in row order [..., N, K/16]."""
    factors = scales.view(torch.float8_e4m3fn).float().repeat_interleave(BLOCK, -1)
    return decode(unpack(packed)) * factors * scale_2


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """[E, rows, blocks] bytes in row order to the 128x4 order of tensor-core backends; padding is zero.

    (r, c) goes to ((r//128) * (C//4) + c//4) * 512 + (r%32) * 16 + (r//32 % 4) * 4 + c%4, with rows padded to
    a multiple of 128 and C blocks to one of 4; the result has the padded shape [E, R, C].
    """
    experts, rows, blocks = scales.shape
    padded = torch.zeros(experts, _up(rows, 128), _up(blocks, 4), dtype=scales.dtype, device=scales.device)
    padded[:, :rows, :blocks] = scales
    tiles = padded.reshape(experts, padded.shape[1] // 128, 4, 32, padded.shape[2] // 4, 4)
    return tiles.permute(0, 1, 4, 3, 2, 5).reshape(padded.shape).contiguous()


def unswizzle(swizzled: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """The inverse of `swizzle`: [E, rows, blocks] in row order, padding dropped."""
    experts, padded_rows, padded_blocks = swizzled.shape
    tiles = swizzled.reshape(experts, padded_rows // 128, padded_blocks // 4, 32, 4, 4)
    plain = tiles.permute(0, 1, 4, 3, 2, 5).reshape(swizzled.shape)
    return plain[:, :rows, :blocks].contiguous()


def up_then_gate(w13: torch.Tensor) -> torch.Tensor:
    """Rows [gate; up] of a checkpoint's w1, w3 (dim 1) to the backend's [up; gate]; its own inverse."""
    half = w13.shape[1] // 2
    return torch.cat((w13[:, half:], w13[:, :half]), 1).contiguous()


def weight_globals(folded: torch.Tensor, input_scale: torch.Tensor) -> torch.Tensor:
    """The weights' own globals: the backend keeps weight_scale_2 * input_scale, 16-bit activations want only the first.

    folded [E] or [E, 2] (gate and up apart), input_scale broadcast to it.
    """
    return folded / input_scale


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
