"""The indexer's Triton kernels in Triton's interpreter: selected pools are clamped, and rejected drafts do no harm."""

import importlib.util
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

POOL, HEAD, BLOCK, DRAFTS = 4, 128, 64, 7
FILE = "vllm/models/glm5next/nvidia/ops/kpool_compress.py"


def interpreted(path: Path, name: str) -> ModuleType:
    """The file as a module whose kernels run in the interpreter (vLLM hides Triton where there is no GPU)."""
    import triton
    import triton.language as tl
    from vllm import triton_utils

    before = triton_utils.triton, triton_utils.tl
    triton_utils.triton, triton_utils.tl = triton, tl
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        triton_utils.triton, triton_utils.tl = before
    return module


def _whole_masks(patch: pytest.MonkeyPatch) -> None:
    """The interpreter computes some boolean scalars as integers, and then takes them for no mask."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    for name, place in (("create_masked_load", 1), ("create_masked_store", 2)):
        original = getattr(InterpreterBuilder, name)

        def wrapped(self: Any, *given: Any, _original: Any = original, _place: int = place) -> Any:
            mask = given[_place]
            whole = TensorHandle(mask.data.astype(bool), mask.dtype)
            return _original(self, *given[:_place], whole, *given[_place + 1 :])

        patch.setattr(InterpreterBuilder, name, wrapped)


@pytest.fixture(scope="module")
def ops() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        _whole_masks(patch)
        import vllm

        assert vllm.__file__ is not None
        yield interpreted(Path(vllm.__file__).parents[1] / FILE, "kpool_patched")


@pytest.fixture(scope="module")
def stock_ops(ops: ModuleType, stock: Path) -> ModuleType:
    return interpreted(stock / FILE, "kpool_stock")


def selected(ops: ModuleType) -> list[list[int]]:
    """Two rows of five selected pools; contexts of 14 and 9 tokens hold 3 and 2 whole pools of 4."""
    pools = torch.tensor([[0, 2, -1, 3, 900], [1, 0, 2, -1, -5]], dtype=torch.int32)
    lengths = torch.tensor([14, 9], dtype=torch.int32)
    out: list[list[int]] = ops.expand_pools_and_append_tail(pools, lengths, POOL).tolist()
    return out


def expanded(pools: list[int], length: int) -> list[int]:
    """In plain Python: the tokens of each pool that the context has, then the trailing incomplete pool."""
    whole = length // POOL
    out = []
    for pool in pools:
        out += [pool * POOL + token if 0 <= pool < whole else -1 for token in range(POOL)]
    return out + [whole * POOL + token if token < length % POOL else -1 for token in range(POOL - 1)]


def test_a_pool_past_the_context_is_no_token(ops: ModuleType) -> None:
    assert selected(ops) == [expanded([0, 2, -1, 3, 900], 14), expanded([1, 0, 2, -1, -5], 9)]


def test_stock_lets_it_through(stock_ops: ModuleType) -> None:
    assert 900 * POOL in selected(stock_ops)[0]


class Request:
    """One request's indexer cache and tail, with a ring of `ring` slots in the second block."""

    def __init__(self, ops: ModuleType, ring: int) -> None:
        self.ops, self.ring = ops, ring
        self.cache = torch.zeros(1, BLOCK, HEAD + 4, dtype=torch.uint8)
        # As in the engine: the tail shares the indexer's blocks, so a block is longer than the ring.
        backing = torch.zeros(3, 2 * ring * HEAD + 64, dtype=torch.bfloat16)
        self.tail = backing[:, : 2 * ring * HEAD].unflatten(1, (2, ring, HEAD))
        self.ape = torch.zeros(POOL, HEAD)

    def slots(self, positions: torch.Tensor) -> torch.Tensor:
        return 1 * self.ring + positions % self.ring

    def seed(self, keys: torch.Tensor, scores: torch.Tensor) -> None:
        positions = torch.arange(len(keys))
        self.ops.kpool_seed_tail_cache(self.tail, keys, scores, self.slots(positions), POOL, HEAD)

    def step(self, first: int, keys: torch.Tensor, scores: torch.Tensor) -> None:
        positions = torch.arange(first, first + len(keys), dtype=torch.int32)
        ends = positions % POOL == POOL - 1
        self.ops.kpool_decode_update_and_maybe_write_cache_batched(
            self.cache,
            self.tail,
            self.slots(positions).to(torch.int32)[None],
            keys[None],
            scores[None],
            self.ape,
            torch.where(ends, positions // POOL, -1).to(torch.int32)[None],
            positions[None],
            POOL,
            HEAD,
        )

    def entries(self, pools: range) -> torch.Tensor:
        """Keys and scales of some pools, as bytes."""
        keys = self.cache[0].flatten()[: BLOCK * HEAD].view(BLOCK, HEAD)
        scales = self.cache[0].flatten()[BLOCK * HEAD :].view(BLOCK, 4)
        return torch.cat((keys, scales), dim=1)[pools.start : pools.stop]


def drafted(ops: ModuleType, ring: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cache entries after decoding with 7 drafts a step of which most are rejected, and token by token."""
    draw = torch.Generator().manual_seed(5)
    total, prompt = 24, 6
    keys = torch.randn(total, HEAD, generator=draw).to(torch.bfloat16)
    scores = torch.randn(total, HEAD, generator=draw).to(torch.bfloat16)
    plain, fast = Request(ops, ring), Request(ops, ring)
    for request in (plain, fast):
        request.seed(keys[:prompt], scores[:prompt])
    for position in range(prompt, total):
        plain.step(position, keys[position : position + 1], scores[position : position + 1])
    position, dice = prompt, random.Random(1)
    while position + DRAFTS + 1 <= total:
        accepted = dice.choice((1, 1, 2, 3, 5))
        wrong = torch.randn(DRAFTS + 1 - accepted, HEAD, generator=draw).to(torch.bfloat16)
        fast.step(
            position,
            torch.cat((keys[position : position + accepted], wrong)),
            torch.cat((scores[position : position + accepted], wrong.flip(0))),
        )
        position += accepted
    pools = range(1, position // POOL)
    return fast.entries(pools), plain.entries(pools)


def test_rejected_drafts_leave_the_keys_alone(ops: ModuleType) -> None:
    """With k=7 the ring holds 16: one pool and eight tokens, in whole pools, a power of two of them."""
    fast, plain = drafted(ops, ring=16)
    assert len(fast) >= 2
    assert torch.equal(fast, plain)


def test_a_ring_of_one_pool_is_overwritten(ops: ModuleType) -> None:
    """Why the ring grew: with four slots the same run reads keys of rejected drafts."""
    fast, plain = drafted(ops, ring=POOL)
    assert not torch.equal(fast, plain)
