"""The lab's pages in a real Chromium, through everything that can happen: right, agreed on, readable (axe-core)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import page

NEEDED = ("chromium", "node", "npm")
MISSING = [name for name in NEEDED if shutil.which(name) is None]


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)} (apt install chromium npm)")
@pytest.mark.parametrize("name", page.TOURS)
def test_the_pages_are_right_agree_and_can_be_read(tmp_path: Path, name: str) -> None:
    for seen in page.run("stand-in", tmp_path, [name]):
        assert seen.good, seen


def test_every_situation_of_the_contract_is_toured() -> None:
    assert set(page.TOURS) == {"boot", "killed", "paused", "engine", "refusal", "untrue"}
