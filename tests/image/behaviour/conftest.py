"""Stand-ins for what cannot be imported here: torchvision beside a CPU torch, and vLLM's CUDA extensions."""

import importlib.machinery
import importlib.metadata
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers.utils import is_torchvision_available

# Asked before the stand-in is there: transformers keeps the answer, and must not look for image tools in it.
assert not is_torchvision_available()


class _Missing(ModuleType):
    """A module whose every attribute is a stand-in class: enough for `from torchvision.x import Y`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for missing in (
    "torchvision",
    "torchvision.transforms",
    "torchvision.transforms.v2",
    "vllm._C_stable_libtorch",
    "vllm._C",
    "vllm._moe_C",
):
    sys.modules.setdefault(missing, _Missing(missing))

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
