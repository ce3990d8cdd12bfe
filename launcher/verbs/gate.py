"""`./glm53 gate ...`: measure a server, in the private environment that holds numpy and scipy."""

from __future__ import annotations

import os

from launcher.ending import attended
from launcher.environments import locked, python_of
from launcher.paths import ROOT


def run(arguments: list[str]) -> int:
    """Exit status of the gate: failed checks; 100 not begun; 2 a refused setting."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [str(python_of(locked("dev"))), "-m", "gate", *(arguments or ["--help"])]
    return attended(command, {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})[0]
