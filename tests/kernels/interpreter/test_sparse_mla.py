"""sparse_mla under Triton's interpreter against fp64: several head counts, split and unsplit, ragged and empty rows.

Small here, and e4m3 caches only: the interpreter's products take bf16 for integers. Every size and both types run on a
GPU in bench/kernels_sparse_mla.py.
"""

import pytest
import torch

from experimental.sparse_mla.launch import Shape, rows_per_split, sparse_mla, splits_for
from experimental.sparse_mla.reference import reference

SCALE = 1 / 16


def made(tokens: int, heads: int, topk: int) -> tuple[torch.Tensor, ...]:
    """Fresh inputs over a cache of 96 rows; lengths from none to all."""
    rng = torch.Generator().manual_seed(tokens * 100 + heads)
    q = torch.randn(tokens, heads, 512, generator=rng).bfloat16()
    kv = torch.randn(96, 512, generator=rng)
    stored = kv.to(torch.float8_e4m3fn).view(torch.uint8)
    idx = torch.randint(0, 96, (tokens, topk), generator=rng, dtype=torch.int32)
    lens = torch.randint(1, topk + 1, (tokens,), generator=rng, dtype=torch.int32)
    lens[0] = topk if tokens == 1 else 0
    idx[torch.arange(topk)[None] >= lens[:, None]] = -1
    return q, stored, idx, lens


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize(("tokens", "heads", "topk", "splits"), [(1, 16, 1, 1), (3, 11, 96, 1), (2, 22, 80, 3)])
def test_it_is_the_softmax_over_the_gathered_rows(tokens: int, heads: int, topk: int, splits: int) -> None:
    q, kv, idx, lens = made(tokens, heads, topk)
    out = torch.full_like(q, float("nan"))
    sparse_mla(q, kv, idx, lens, SCALE, 0.37, out=out, splits=splits)
    # The interpreter truncates to bf16 where a GPU rounds: up to 2^-8 on top of the bound.
    assert error(out, reference(q, kv, idx, lens, SCALE, 0.37)) < 5e-3 + 2**-8
    assert bool((out[lens == 0] == 0).all())


def test_both_cache_layouts_give_the_same_bytes() -> None:
    q, kv, idx, lens = made(3, 16, 48)
    blocks = torch.full((6, 16 * 512 + 1024), 0x7F, dtype=torch.uint8)  # NaN lies between the blocks
    blocks[:, : 16 * 512] = kv.view(6, -1)
    flat = sparse_mla(q, kv, idx, lens, SCALE)
    strided = sparse_mla(q, blocks, idx, lens, SCALE, block_rows=16, block_stride=blocks.stride(0))
    assert torch.equal(flat, strided)


def test_a_row_past_its_length_is_not_read() -> None:
    q, kv, idx, _ = made(1, 16, 32)
    few = torch.tensor([5], dtype=torch.int32)
    cut = idx.clone()
    cut[:, 5:] = -1
    assert torch.equal(sparse_mla(q, kv, idx, few, SCALE), sparse_mla(q, kv, cut, few, SCALE))


def test_no_tokens_and_no_width() -> None:
    q, kv, idx, lens = made(2, 16, 16)
    assert sparse_mla(q[:0], kv, idx[:0], lens[:0], SCALE).shape == (0, 16, 512)
    assert not sparse_mla(q, kv, idx[:, :0], lens, SCALE).any()


@pytest.mark.parametrize(("shape", "dtype"), [((1, 16, 576), torch.bfloat16), ((1, 65, 512), torch.bfloat16),
                                              ((1, 16, 512), torch.float32)])  # fmt: skip
def test_other_shapes_are_refused(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _, kv, idx, lens = made(1, 16, 16)
    with pytest.raises(ValueError, match="sparse_mla takes"):
        sparse_mla(torch.zeros(shape, dtype=dtype), kv, idx, lens, SCALE)


@pytest.mark.parametrize("topk", [1, 77, 512, 2048, 2176])
@pytest.mark.parametrize("tokens", [1, 3, 8, 64, 300, 4096])
def test_splits_cover_every_row_once(tokens: int, topk: int) -> None:
    splits = splits_for(tokens, topk)
    per = rows_per_split(topk, splits, Shape(32, 4).rows)
    assert per % 32 == 0
    assert per * splits >= topk
    assert tokens < 264 or splits == 1
