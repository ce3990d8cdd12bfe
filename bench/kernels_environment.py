"""The Python environment of tests/kernels: torch on CPU, a Triton that lowers these kernels well, numpy, pytest.

The lab's engine environment has all of them (Triton 3.9), so the suite takes that one instead of a copy of its own.
"""

from __future__ import annotations

from pathlib import Path

from lab.vllm import environment as vllm_environment


def environment(name: str) -> Path:
    """The folder of the environment called `name` ("kernels"); made on first use."""
    assert name == "kernels", name
    return vllm_environment()
