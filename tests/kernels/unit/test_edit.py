"""Hooks that meet: two overlays in one module, two edits of one function, a hook that fails."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experimental.edit import AnchorError, HookFailed, edit, hooking, when_imported
from experimental.moe_decode.hook import steps
from experimental.nvfp4.cut import tiles_for

SOURCE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
NAME = "glm53_a_module_to_hook"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / f"{NAME}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield NAME
    sys.modules.pop(NAME, None)


def test_overlays_that_wait_for_one_module_are_all_served(module: str) -> None:
    with hooking("first"):
        when_imported(module, lambda made: edit(made.one, (("1", "10"),), {}))
    with hooking("second"):
        when_imported(module, lambda made: edit(made.two, (("2", "20"),), {}))
    made = importlib.import_module(module)
    assert (made.one(), made.two()) == (10, 20)


def test_a_second_edit_of_one_function_names_both_overlays_and_the_cure(module: str) -> None:
    with hooking("first"):
        when_imported(module, lambda made: edit(made.one, (("1", "10"),), {}))
    with hooking("second"):
        when_imported(module, lambda made: edit(made.one, (("return", "return -"),), {}))
    with pytest.raises(HookFailed, match=r"overlay second could not hook.*by overlay first.*--without second"):
        importlib.import_module(module)


def test_a_hook_that_fails_is_named(module: str) -> None:
    made = importlib.import_module(module)
    named = pytest.raises(HookFailed, match=r"overlay broken could not hook: AnchorError.*--without broken")
    with named as told, hooking("broken"):
        edit(made.one, (("3", "4"),), {})
    assert isinstance(told.value.__cause__, AnchorError)


def test_every_limit_of_moe_decode_has_its_kernels_prepared() -> None:
    for most in range(1, 65):
        assert {tiles_for(tokens) for tokens in range(1, most + 1)} == {tiles_for(step) for step in steps(most)}
        assert (1 in steps(most), 4 in steps(most)) == (True, most > 2), "two cuts: up to 2 tokens, and more"
