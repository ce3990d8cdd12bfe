"""`lab up` that is ended half-way leaves nothing: no process, socket, shared memory, description."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import state
from lab.processes import carrying, everything, wait_until
from lab.providers import process
from lab.state import Lab
from lab.watch import get
from launcher.paths import ROOT

NAME = "test-interrupted"
MOMENTS: dict[str, Callable[[Lab], bool]] = {
    "while boxes start": lambda lab: (lab.boxes[0].path / "keeper.json").exists(),
    "while they come together": lambda lab: get(lab.boxes[1].address, lab.status_port, "/healthz", 1) is not None,
}


def up() -> bool:
    return state.file_of(NAME).exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", [[], ["--no-namespaces"]], ids=["namespaces", "plain"])
def test_nothing_is_left(kind: list[str], moment: str, number: signal.Signals, engine: None) -> None:
    # An engine that ends at once: the boxes are at work all the time, and no vLLM is waited for.
    command = [sys.executable, str(ROOT / "glm53"), "lab", "--name", NAME, "up", "--set", "ENGINE_PYTHON=/bin/false"]
    before = set(Path("/dev/shm").glob("psm_*"))
    started = subprocess.Popen([*command, *kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert wait_until(up, 30)
        lab = state.load(NAME)
        assert wait_until(lambda: MOMENTS[moment](lab), 60, 0.01)
    finally:
        started.send_signal(number)
        said, _ = started.communicate(timeout=60)
    assert started.returncode == 128 + number, said
    assert "Traceback" not in said
    assert not up()
    assert process.leftovers(lab) == []
    assert not any(carrying(f"GLM53_LAB_BOX={lab.group}/{box.name}") for box in lab.boxes)
    assert not [one for one in everything().values() if f"/.lab/{NAME}/" in one.title]
    assert set(Path("/dev/shm").glob("psm_*")) <= before
