"""A waiting rank sleeps: CPU time of the reader of vLLM's own broadcast, stock against patched, at the same time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SECONDS = 8


def start(tree: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "bench" / "spin_wait.py"), "--seconds", str(SECONDS), "--json"]
    environment = {**os.environ, "PYTHONPATH": tree, "VLLM_LOGGING_LEVEL": "ERROR"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_a_waiting_rank_uses_a_tenth_of_the_cpu_time(stock: Path) -> None:
    patched = os.environ["PYTHONPATH"].split(os.pathsep)[0]
    running = [start(str(stock)), start(patched)]
    theirs, ours = (result(process) for process in running)
    assert theirs["messages"] == ours["messages"] == SECONDS
    assert ours["cpu_s"] < theirs["cpu_s"] / 10
