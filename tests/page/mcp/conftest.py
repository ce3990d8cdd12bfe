"""A group of two that serves, its engine the lab's stand-in with real gloo ranks; once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.asking import SECRET, TOKEN
from tests.stays_up.kits.boxes import Box, kits, serving, until


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Box]]:
    folder: Path = tmp_path_factory.mktemp("group")
    with kits(folder, 2, GROUP_SECRET=SECRET, STATUS_TOKEN=TOKEN, HF_TOKEN="hf_of_the_tests_0123") as made:
        until(lambda: serving(made) != "", made, 60)
        yield made
