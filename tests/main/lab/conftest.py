"""Fixtures for all files here."""

import pytest

from lab import vllm
from launcher.environments import locked


@pytest.fixture(scope="session")
def engine() -> None:
    """vLLM and the kit's environment: made before anything is timed."""
    vllm.environment()
    locked("kit")
