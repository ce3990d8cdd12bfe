"""`./glm53 gate ...`: measure a server, in the private environment that holds numpy and scipy."""

from __future__ import annotations

import os
import signal
import subprocess

from launcher.ending import Told
from launcher.environments import locked, python_of
from launcher.paths import ROOT


def run(arguments: list[str]) -> int:
    """Exit status of the gate: failed checks; 100 not begun; 2 a refused setting."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [str(python_of(locked("dev"))), "-m", "gate", *(arguments or ["--help"])]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
    while True:
        try:
            return process.wait()
        except Told:
            process.send_signal(signal.SIGINT)  # sent to us alone: the gate writes its report and ends
        except KeyboardInterrupt:
            continue  # Ctrl-C reached the gate too
