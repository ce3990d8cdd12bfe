"""moe_decode under Triton's interpreter against fp64: skipped choices, ragged counts, every expert touched once."""

import pytest
import torch

from experimental.moe_decode import launch, reference
from experimental.moe_decode.launch import Shape, workspace


def run(
    m: int, hidden: int, intermediate: int, topk: int, shape: Shape, ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernels wrote over poison, and the reference."""
    rng = torch.Generator().manual_seed(m)
    layer = reference.random_experts(5, hidden, intermediate, "cpu", seed=m)
    x = torch.randn(m, hidden, generator=rng).bfloat16()
    weights = torch.rand(m, topk, generator=rng)
    space = workspace(m, topk, intermediate, x.device)
    space.hidden.fill_(float("nan"))
    for scratch in (space.experts, space.where, space.count):
        scratch.fill_(123456)
    out = torch.full((m, hidden), float("nan"))
    launch.moe(x, ids, weights, layer, out, space, limit=10.0, scaling=2.5, shape=shape)
    return out.double(), reference.moe(x, ids, weights, layer, limit=10.0, scaling=2.5)


@pytest.mark.parametrize(
    ("m", "hidden", "intermediate", "shape"),
    [
        (2, 128, 128, Shape(1, 4, 1, 1, 4)),
        (3, 128, 384, Shape(1, 4, 2, 2, 4)),  # the warps do not share I evenly; experts walk in pairs
    ],
)
def test_moe_is_the_weighted_sum_of_its_experts(m: int, hidden: int, intermediate: int, shape: Shape) -> None:
    ids = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(i))[:2] for i in range(m)]).int()
    ids[0, 1] = -1
    got, want = run(m, hidden, intermediate, 2, shape, ids)
    assert float((got - want).norm() / want.norm()) < 1e-3


def test_an_expert_with_more_than_eight_tokens() -> None:
    ids = torch.full((9, 1), 3, dtype=torch.int32)
    got, want = run(9, 128, 128, 1, Shape(1, 4, 1, 1, 4), ids)
    assert float((got - want).norm() / want.norm()) < 1e-3


def test_tokens_without_any_expert_get_zeros() -> None:
    got, _ = run(2, 128, 128, 2, Shape(1, 4, 1, 1, 4), torch.full((2, 2), -1, dtype=torch.int32))
    assert not got.any()
