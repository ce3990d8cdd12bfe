"""Ways to make a box. Each provider is a module with the same functions, so that they compare side by side.
process: a box is a set of processes on this machine (a pid namespace where permitted). No root, no Docker.
netns: as process, each box in a network namespace of its own. Root; for bench/chaos, which enters one first.
docker: a box is a container of the real image, started with the real compose file. Root and a Docker engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lab.state import Lab

NAMES = ("process", "docker")


def of(lab: Lab) -> Any:
    """The module that makes the boxes of a lab."""
    return named(lab.provider)


def named(provider: str) -> Any:
    """The module of one of NAMES."""
    return import_module(f"lab.providers.{provider}")
