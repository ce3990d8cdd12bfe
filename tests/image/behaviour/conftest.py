"""Inside real vLLM on CPU, one release a process: what cannot be imported here is replaced before vLLM is."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from tests.fixtures.absent import TORCHVISION, stand_in

stand_in(*TORCHVISION, "vllm._C_stable_libtorch", "vllm._C", "vllm._moe_C")

RELEASE = importlib.metadata.version("vllm").split("+")[0]
# Grouping of KV caches was written anew in 0.32.0: each file speaks of one of the two.
collect_ignore = ["test_kv_groups.py" if RELEASE >= "0.32.0" else "test_kv_packed.py"]


@pytest.fixture(scope="session")
def version() -> str:
    """The release under test, without its local part."""
    return RELEASE


@pytest.fixture(scope="session")
def stock() -> Path:
    """The tree of the same release as published."""
    return Path(os.environ["GLM53_STOCK_TREE"])
