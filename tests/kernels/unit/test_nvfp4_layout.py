"""NVFP4 in torch, exactly: codes, packing, quantising, the 128x4 swizzle, the globals."""

import pytest
import torch

from experimental.nvfp4.layout import (
    VALUES,
    decode,
    dequantise,
    encode,
    pack,
    quantise,
    swizzle,
    unpack,
    unswizzle,
    up_then_gate,
    weight_globals,
)


def test_every_code_decodes_and_encodes_to_itself() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert decode(codes).tolist() == list(VALUES)
    assert torch.equal(encode(decode(codes)), codes)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (5.01, 6.0), (99.0, 6.0)],
)
def test_ties_go_to_the_even_code_and_large_values_saturate(value: float, rounded: float) -> None:
    both = torch.tensor([value, -value])
    assert decode(encode(both)).tolist() == [rounded, -rounded]


def test_rounding_is_to_the_nearest_value() -> None:
    x = torch.linspace(-7, 7, 20001)
    nearest = torch.tensor(VALUES[:8]).sub(x.abs()[:, None]).abs().min(1).values
    assert torch.allclose((decode(encode(x)).abs() - x.abs()).abs(), nearest)


def test_pack_puts_even_k_in_the_low_nibble() -> None:
    codes = torch.tensor([[1, 2, 3, 4]], dtype=torch.uint8)
    assert pack(codes).tolist() == [[0x21, 0x43]]
    random = torch.randint(0, 16, (3, 5, 64), dtype=torch.uint8)
    assert torch.equal(unpack(pack(random)), random)


def test_representable_weights_survive_quantising_bit_for_bit() -> None:
    codes = torch.randint(0, 16, (48, 128), dtype=torch.uint8)
    codes[:, ::16] = 7  # each block holds its largest value, 6, so that its scale is found again
    scales = torch.randint(0x30, 0x7F, (48, 8), dtype=torch.uint8)
    scales[0, 0] = 0x7E  # 448: the tensor's global is found again
    weight = dequantise(pack(codes), scales, 2.0**-9)
    again = quantise(weight)
    assert torch.equal(dequantise(again.packed, again.scales, again.scale_2), weight)
    assert torch.equal(again.scales, scales)


def test_quantising_zeros_and_outliers() -> None:
    zeros = quantise(torch.zeros(4, 32))
    assert float(zeros.scale_2) == 1.0
    assert not dequantise(zeros.packed, zeros.scales, zeros.scale_2).any()
    weight = torch.full((1, 32), 1e-6)
    weight[0, 0] = 1000.0  # the second block's scale rounds to zero: its values vanish, nothing becomes NaN
    made = quantise(weight)
    got = dequantise(made.packed, made.scales, made.scale_2)
    assert torch.isfinite(got).all()
    assert got[0, 0] == 1000.0


def test_quantising_error_is_that_of_four_bits() -> None:
    weight = torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    made = quantise(weight)
    error = (dequantise(made.packed, made.scales, made.scale_2) - weight).norm() / weight.norm()
    assert 0.05 < float(error) < 0.12


def test_k_must_be_a_multiple_of_sixteen() -> None:
    with pytest.raises(ValueError, match="K=24"):
        quantise(torch.zeros(4, 24))


@pytest.mark.parametrize(("rows", "blocks"), [(128, 4), (256, 32), (1024, 256), (200, 6), (1, 1)])
def test_swizzle_follows_the_published_formula(rows: int, blocks: int) -> None:
    scales = torch.randint(0, 255, (2, rows, blocks), dtype=torch.uint8)
    made = swizzle(scales)
    flat, columns = made.flatten(1), made.shape[2]
    assert made.shape == (2, -(-rows // 128) * 128, -(-blocks // 4) * 4)
    r, c = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    at = ((r // 128) * (columns // 4) + c // 4) * 512 + (r % 32) * 16 + ((r // 32) % 4) * 4 + c % 4
    assert torch.equal(flat[:, at.flatten()].reshape(2, rows, blocks), scales)
    assert int((made != 0).sum()) == int((scales != 0).sum())
    assert torch.equal(unswizzle(made, rows, blocks), scales)


def test_rows_and_globals_of_gate_and_up() -> None:
    gate, up = torch.zeros(2, 3, 8), torch.ones(2, 3, 8)
    swapped = up_then_gate(torch.cat((gate, up), 1))
    assert torch.equal(swapped, torch.cat((up, gate), 1))
    assert torch.equal(up_then_gate(swapped), torch.cat((gate, up), 1))
    weight, activation = torch.tensor([[2.0, 4.0], [8.0, 16.0]]), torch.tensor([[0.5], [0.25]])
    assert torch.equal(weight_globals(weight * activation, activation), weight)
