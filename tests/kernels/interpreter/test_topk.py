"""topk under Triton's interpreter against a stable sort: ties at the cut, rescans, short rows, NaN, both zeros."""

import pytest
import torch

from bench.kernels_small import patch_choose
from experimental.topk.launch import SPARE, refine_topk
from experimental.topk.reference import reference


def candidates_of(logits: torch.Tensor, ends: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """What a kernel that breaks ties anyhow may give: the `count` best of each row in any order, -1 for none."""
    rng = torch.Generator().manual_seed(seed)
    found = torch.full((logits.shape[0], count), -1, dtype=torch.int32)
    for row, end in enumerate(ends.tolist()):
        order = torch.randperm(end, generator=rng)
        scores = logits[row, :end][order].nan_to_num(float("-inf"))
        best = order[torch.sort(scores, descending=True, stable=True).indices[:count]]
        best = best[torch.randperm(len(best), generator=rng)]
        found[row, : len(best)] = best.int()
    return found


@pytest.mark.parametrize("levels", [1, 3, 40, 100_000], ids=["all tie", "3 values", "40 values", "few ties"])
def test_the_lowest_ids_win_ties_whatever_the_candidates(levels: int) -> None:
    k, spare, width = 12, 4, 150
    rng = torch.Generator().manual_seed(levels)
    logits = torch.randint(0, levels, (6, width), generator=rng).float() - levels / 2
    ends = torch.tensor([width, 149, 17, 12, 5, 0], dtype=torch.int32)
    starts = torch.zeros_like(ends)
    want = reference(logits, starts, ends, k)
    for seed in range(2):
        out = torch.full((6, k), -7, dtype=torch.int32)
        refine_topk(logits, candidates_of(logits, ends, k + spare, seed), starts, ends, out)
        assert torch.equal(out, want)


def test_ids_are_relative_to_the_rows_start() -> None:
    rng = torch.Generator().manual_seed(1)
    logits = torch.randint(0, 5, (2, 64), generator=rng).float()
    starts, ends = torch.tensor([0, 20], dtype=torch.int32), torch.tensor([30, 64], dtype=torch.int32)
    shifted = torch.stack([logits[0, :44].clone(), logits[1, 20:].clone()])
    found = candidates_of(shifted, ends - starts, 12, 0)
    out = torch.empty((2, 8), dtype=torch.int32)
    refine_topk(logits, found, starts, ends, out)
    assert torch.equal(out, reference(logits, starts, ends, 8))


def test_nan_is_lowest_and_zeros_are_equal() -> None:
    logits = torch.tensor([[float("nan"), -0.0, 0.0, float("inf"), float("nan"), 0.0, -1.0, -0.0]])
    ends = torch.tensor([8], dtype=torch.int32)
    out = torch.empty((1, 4), dtype=torch.int32)
    refine_topk(logits, torch.arange(7, -1, -1, dtype=torch.int32)[None], torch.zeros_like(ends), ends, out)
    assert out.tolist() == [[1, 2, 3, 5]]


def test_too_few_candidates_are_refused() -> None:
    ends = torch.tensor([8], dtype=torch.int32)
    with pytest.raises(ValueError, match="at least k=4"):
        refine_topk(torch.zeros(1, 8), torch.zeros(1, 3, dtype=torch.int32), ends * 0, ends, torch.empty(1, 4).int())


def tied(rows: int, pools: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of which about a third equal the 512th, so that the cut is a tie in every row."""
    logits = torch.randn(rows, pools, generator=torch.Generator().manual_seed(pools))
    cut = logits.kthvalue(pools - 512, dim=1, keepdim=True).values
    return torch.where((logits - cut).abs() < 0.4, cut, logits), torch.full((rows,), pools, dtype=torch.int32)


@pytest.mark.parametrize(
    ("rows", "pools", "calls"),
    [
        (1, 1300, 1),
        pytest.param(1, 1300, 25, marks=pytest.mark.full),
        pytest.param(1, 8000, 25, marks=pytest.mark.full),
        pytest.param(8, 1300, 2, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("way", ["overlay", "patch"])
def test_the_models_own_size_by_overlay_and_by_patch(rows: int, pools: int, calls: int, way: str) -> None:
    """k = 512 with 2 s of interpreter a row; 64 and 16128 rows of both widths, 200 calls each, ran on an H200."""
    logits, ends = tied(rows, pools)
    starts = torch.zeros_like(ends)
    want = reference(logits, starts, ends, 512)
    choose = refine_topk if way == "overlay" else patch_choose()
    for seed in range(calls):
        out = torch.full((rows, 512), -7, dtype=torch.int32)
        choose(logits, candidates_of(logits, ends, 512 + SPARE, seed), starts, ends, out)
        assert torch.equal(out, want)
