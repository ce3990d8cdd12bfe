"""mhc under Triton's interpreter: against fp64, and bit for bit the same from a bf16 and an fp32 weight."""

import pytest
import torch

from experimental.mhc.launch import MIXES, TILES, fused_post_pre, lost, tile_for
from experimental.mhc.reference import random_inputs, reference


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize(("tokens", "hidden", "splits"), [(1, 256, 2), (2, 640, 1), (16, 64, 1)])
def test_it_is_the_mixed_streams_and_their_projection(tokens: int, hidden: int, splits: int) -> None:
    inputs = random_inputs(tokens, hidden, "cpu", seed=tokens)
    mixes, squares, new = fused_post_pre(*inputs, splits)
    right_mixes, right_squares, right_new = reference(*inputs, splits)
    assert error(mixes, right_mixes) < 1e-6
    assert error(squares, right_squares) < 1e-6
    assert error(new, right_new) < 2**-8  # one rounding to bf16


@pytest.mark.parametrize("tile", TILES)
def test_every_tile_gives_the_same(tile: int) -> None:
    inputs = random_inputs(1, 64, "cpu")
    assert error(fused_post_pre(*inputs, 1, tile)[0], reference(*inputs, 1)[0]) < 1e-6


@pytest.mark.parametrize("tokens", [1, 16])
def test_a_weight_that_bf16_holds_gives_the_same_bytes_either_way(tokens: int) -> None:
    comb, residual, post, x, weight = random_inputs(tokens, 64 * (17 - tokens), "cpu")
    assert lost(weight.float()) == 0
    short = fused_post_pre(comb, residual, post, x, weight, 1)
    wide = fused_post_pre(comb, residual, post, x, weight.float(), 1)
    assert all(torch.equal(a, b) for a, b in zip(short, wide, strict=True))


def test_the_probe_counts_every_value_that_would_change() -> None:
    weight = torch.randn(24, 64).bfloat16().float()
    weight[0, :4] = torch.tensor([float("inf"), -0.0, 2.0**-133, -(2.0**120)])
    assert lost(weight) == 0
    weight[5, 7] += 2.0**-12
    weight[9, 1] = 1 / 3
    assert lost(weight) == 2
    assert lost(torch.full((1, 2), 3.4e38)) == 2  # would become infinite


def test_no_tokens_and_refusals() -> None:
    comb, residual, post, x, weight = random_inputs(2, 128, "cpu")
    assert fused_post_pre(comb[:0], residual[:0], post[:0], x[:0], weight, 2)[0].shape == (2, 0, MIXES)
    with pytest.raises(ValueError, match="splits of 16s"):
        fused_post_pre(comb, residual, post, x, weight, 3)
    with pytest.raises(ValueError, match="4 streams"):
        fused_post_pre(comb, residual[:, :3].contiguous(), post, x, weight, 2)
    with pytest.raises(ValueError, match="contiguous"):
        fused_post_pre(comb, residual, post, x.T.contiguous().T, weight, 2)
    assert [MIXES % tile_for(tokens) for tokens in (1, 15, 16, 32)] == [0] * 4
