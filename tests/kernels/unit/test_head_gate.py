"""The head gate off CUDA, and anchored edits: applied once, seen by whoever holds the function, refused when unsure."""

import math

import pytest
import torch

from experimental.edit import AnchorError, edit, twin
from experimental.head_gate.launch import head_gate, reference


def test_the_gate_is_the_product_of_the_bf16_values() -> None:
    hidden, weight = torch.randn(5, 256).bfloat16(), torch.randn(16, 256).bfloat16()
    got = head_gate(hidden, weight)
    assert got.dtype == torch.float32
    assert float((got.double() - reference(hidden, weight)).norm() / reference(hidden, weight).norm()) < 1e-6


def sample(x: int) -> int:
    """Edited below."""
    return x + 1


def test_who_holds_the_function_runs_the_new_code() -> None:
    held = sample
    edit(sample, [("x + 1", "_ours(x) + 2")], {"_ours": lambda x: 10 * x})
    edit(sample, [("x + 1", "_ours(x) + 2")], {"_ours": None})  # again: nothing
    assert held(3) == 32
    with pytest.raises(AnchorError, match="edited already"):
        edit(sample, [("x + 1", "x")], {})


def test_an_anchor_must_be_there_once() -> None:
    def twice(x: int) -> int:
        return x + x

    with pytest.raises(AnchorError, match="occurs 3 times"):
        edit(twice, [("x", "y")], {})
    with pytest.raises(AnchorError, match="occurs 0 times"):
        edit(twice, [("z", "y")], {})


def test_a_closure_is_refused() -> None:
    step = 3

    def adds(x: int) -> int:
        return x + step

    with pytest.raises(AnchorError, match="closes over"):
        edit(adds, [("x + step", "x - step")], {})


def test_a_twin_has_the_modules_names_and_its_own() -> None:
    made = twin(math, "def f(x):\n    return floor(x) + more\n", [("+ more", "+ extra")], "f", {"extra": 5})
    assert made(2.5) == 7
    assert not hasattr(math, "f")
