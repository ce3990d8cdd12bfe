"""Trees of fake boxes live in memory where there is such a place: a suite writes some 200,000 small files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def trees() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="glm53-trees-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
