"""dense_w4 and dense_fp8 under Triton's interpreter, against fp64; outputs poisoned first, written as fp32.

The interpreter truncates where the GPU rounds, so bf16 outputs are not compared here.
"""

import pytest
import torch

from experimental.dense_fp8 import launch as fp8
from experimental.dense_w4 import launch as w4
from experimental.nvfp4.cut import Shape
from experimental.nvfp4.kernel import UNSCALE
from experimental.nvfp4.layout import dequantise, quantise

POISON = float("nan")


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize(
    ("m", "n", "k", "shape"),
    [
        (1, 24, 256, Shape(2, 1, 2, 1)),  # a ragged last program
        (8, 32, 384, Shape(4, 1, 4, 1)),  # K that the warps do not share evenly
        (13, 32, 512, Shape(2, 2, 2, 1)),  # two tiles of tokens, warps that share rows
        (64, 16, 256, Shape(1, 1, 2, 2)),  # the most tokens, two chunks a step
        (5, 24, 512, Shape(2, 1, 1, 2)),  # eight rows a program
    ],
)
def test_dense_w4_is_the_dequantised_product(m: int, n: int, k: int, shape: Shape) -> None:
    rng = torch.Generator().manual_seed(m)
    rows = -(-n // shape.program_rows) * shape.program_rows
    weight = torch.zeros(rows, k)
    weight[:n] = torch.randn(n, k, generator=rng)
    made = quantise(weight)
    x = torch.randn(m, k, generator=rng).bfloat16()
    out = torch.full((m, n), POISON)
    words, pairs = w4.arrange(made.packed, made.scales)
    w4.product(x, words, pairs, (made.scale_2 * UNSCALE["bf16"]).reshape(1), out, shape)
    want = x.double() @ dequantise(made.packed, made.scales, made.scale_2)[:n].double().T
    assert error(out, want) < 1e-6


def test_dense_w4_takes_no_tokens_and_refuses_other_k() -> None:
    words, alpha = torch.zeros(16, 32, dtype=torch.int16), torch.ones(1)
    out = torch.empty(0, 16)
    w4.product(torch.empty(0, 128, dtype=torch.bfloat16), words, words, alpha, out, Shape(1, 1, 2, 1))
    with pytest.raises(ValueError, match="K=96"):
        w4.arrange(torch.zeros(16, 48, dtype=torch.uint8), torch.zeros(16, 6, dtype=torch.uint8))
    with pytest.raises(ValueError, match="K=96"):
        w4.product(torch.empty(1, 96, dtype=torch.bfloat16), words, words, alpha, out, Shape(1, 1, 2, 1))


@pytest.mark.parametrize(
    ("m", "n", "k", "shape"),
    [(1, 30, 192, Shape(4, 1, 2, 1)), (11, 64, 256, Shape(2, 2, 2, 2))],
)
def test_dense_fp8_is_the_product_of_what_was_quantised(m: int, n: int, k: int, shape: Shape) -> None:
    rng = torch.Generator().manual_seed(m)
    w, w_scale = fp8.quantise_weight(torch.randn(n, k, generator=rng))
    missing = -n % shape.program_rows
    padded = torch.cat((w.view(torch.uint8), torch.full((missing, k), 0x7F, dtype=torch.uint8)))  # NaN: must not leak
    scales = torch.cat((w_scale, torch.full((missing,), POISON)))
    x = torch.randn(m, k, generator=rng).bfloat16()
    x8, x_scale = torch.empty(m, k, dtype=torch.float8_e4m3fn), torch.full((m,), POISON)
    fp8.quantise(x, x8, x_scale)
    assert torch.equal(x_scale, x.float().abs().amax(1) / 448)
    out = torch.full((m, n), POISON)
    fp8.product(x8, x_scale, padded.view(torch.float8_e4m3fn), scales, out, shape)
    # x8 as it came: the interpreter loses the carry where e4m3 rounds up to a power of two (127.8 becomes 64). On a GPU
    # bench/kernels_checks.py compares with torch's own bytes.
    want = (x8.double() * x_scale[:, None]) @ (w.double() * w_scale[:, None]).T
    assert error(out, want) < 1e-6


def test_fp8_weights_keep_each_channels_largest_value() -> None:
    weight = torch.randn(8, 64)
    weight[3] = 0
    w, scale = fp8.quantise_weight(weight)
    back = w.float() * scale[:, None]
    assert float(scale[3]) == 1.0
    assert not back[3].any()
    assert torch.allclose(back.abs().amax(1), weight.abs().amax(1))
    assert error(back, weight.double()) < 0.04
