"""What a user gets wrong, tried on real kits: refused in time, with a cure, without a traceback, without vLLM."""

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from bench.refusals import GROUP, GROUP_LAB, group_once
from lab import blocks, model, state
from lab.environment import command, environment, make_folders
from lab.processes import wait_until
from lab.providers import process
from lab.state import Lab
from lab.watch import TOLD, status
from launcher.environments import locked, python_of
from launcher.paths import ROOT, cache
from tests.main.lab.clusters import a_lab

# Each with what the message must say; all of one box, so it says so by itself.
LOCAL = {
    "tp that no group can have": ({"TP": "5"}, r"TP: seen '5'; expected one of 2, 3, 4, 6"),
    "tp in letters": ({"TP": "four"}, r"TP: seen 'four'"),
    "negative memory": ({"KV_CACHE_MEMORY": "-1"}, r"KV_CACHE_MEMORY: seen '-1'; expected a size"),
    "misspelt knob": ({"MAX_NUM_SEQ": "8"}, r"MAX_NUM_SEQ.*MAX_NUM_SEQS"),
    "broken json": ({"LIMIT_MM": "{"}, r"LIMIT_MM: seen '\{'; expected a JSON object"),
    "missing model": ({"MODEL_DIR": "/nowhere/model"}, r"/nowhere/model"),
}
# A wait that cannot end is a failure; how long it takes is measured by bench/refusals.py, on a quiet machine.
LOCAL_S = 20.0

GROUP_S = 20.0


@pytest.fixture(scope="module")
def warm(engine: None) -> None:
    """The kit's files are read and compiled once before anything is timed."""
    code = "import entrypoint.boot, entrypoint.status.app, zeroconf, uvicorn"
    cached = {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache() / "pycache")}
    subprocess.run([str(python_of(locked("kit"))), "-c", code], env=os.environ | cached, check=True)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: None) -> Lab:
    """Addresses and folders of a box that is started by hand."""
    monkeypatch.setattr(state, "home", lambda: tmp_path)
    block, held = blocks.claim(1, (8002, 8082))
    held.close()
    return state.describe("one", 1, block, (8002, 8082), False, {"TP": "2"})


def run_kit(lab: Lab, knobs: dict[str, str], front: tuple[str, ...] = ()) -> tuple[int, str, float]:
    """(exit status, what it wrote, seconds) of a box's kit."""
    box = lab.boxes[0]
    settings = environment(lab, box, ROOT, Path("/bin/false"), model.tiny()) | knobs
    make_folders(settings, box)
    argv = [*front, *command(python_of(locked("kit")))]
    begin = time.monotonic()
    done = subprocess.run(argv, env=settings, cwd=box.path, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


def refused(lab: Lab, knobs: dict[str, str], message: str, front: tuple[str, ...] = ()) -> None:
    status, said, seconds = run_kit(lab, knobs, front)
    assert status == 2, said
    assert "Traceback" not in said
    assert re.search(message, told(said)), said
    assert seconds < LOCAL_S, said


def told(said: str) -> str:
    """The refusals among what a kit wrote: `... refused: setting: seen ...; expected .... cure`."""
    return "\n".join(match.group(0) for match in TOLD.finditer(said))


@pytest.mark.parametrize("name", LOCAL)
def test_a_box_refuses_its_own_fault(name: str, one: Lab) -> None:
    knobs, message = LOCAL[name]
    refused(one, knobs, message)


@pytest.mark.parametrize("port", [8002, 8082])
def test_a_port_in_use_is_refused(port: int, one: Lab) -> None:
    with socket.create_server((one.boxes[0].address, port)):
        refused(one, {}, rf"{port}.*in use|port {port}: seen held by")


def test_a_cache_on_a_read_only_mount_is_refused(one: Lab, tmp_path: Path) -> None:
    if not process.namespaces_permitted():
        pytest.skip("a read-only mount needs namespaces, which this user may not make here")
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    script = f'mount -t tmpfs -o ro tmpfs {readonly} && exec "$@"'
    front = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    refused(one, {"CACHE_ROOT": str(readonly)}, rf"CACHE_ROOT.*{readonly}|{readonly}", front)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", GROUP)
def test_every_box_refuses_a_fault_of_the_group(name: str, engine: None) -> None:
    assert group_once(name) < GROUP_S
    assert not state.file_of(GROUP_LAB).exists()


@pytest.mark.timeout(60)
def test_a_box_too_many_refuses_and_disturbs_nobody(engine: None) -> None:
    """Two boxes are a group of two; the third comes later and says so itself."""
    with a_lab("test-refusal", 3, {"TP": "2"}, at_s=[0.0, 0.0, 4.0]) as lab:
        third = lab.boxes[2]
        assert wait_until(lambda: process.kept(third).state == "refused", 8)
        assert re.search(r"TP.*127\.0\.\d+\.11.*127\.0\.\d+\.12", told((third.path / "kit.log").read_text()))
        pages = [status(lab, box) for box in lab.boxes[:2]]
        assert [page["generation"]["epoch"] for page in pages if page and page["generation"]] == [1, 1]
        for box in lab.boxes[:2]:  # nobody waits for their vLLM
            process.kill_all(lab, box)
