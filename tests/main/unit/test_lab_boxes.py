"""What the lab does with boxes, tried with real processes that stand in for the kit: no vLLM is needed here."""

import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.refusal import Refusal
from hosts.local import Local
from lab import blocks, processes, state
from lab.providers import process
from lab.state import Box, Lab

# A kit with an engine that leaves its session, as vLLM's helpers do. The title is what `find` looks for.
KIT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
helper = "exec -a VLLM::Worker_TP0 sleep 600 & exec -a vllm-serve sleep 600"
subprocess.Popen(["bash", "-c", helper], start_new_session=True)
print("up", os.getpid(), flush=True)
time.sleep(600)
"""
KINDS = [pytest.param(True, id="namespaces"), pytest.param(False, id="plain")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "home", lambda: tmp_path)
    return tmp_path


@pytest.fixture(params=KINDS)
def lab(request: pytest.FixtureRequest, folder: Path) -> Iterator[Lab]:
    if request.param and not process.namespaces_permitted():
        pytest.skip("this kernel or user may not make namespaces; the plain kind is tried instead")
    block, held = blocks.claim(2, (8002, 8082))
    lab = state.describe(f"t{uuid.uuid4().hex[:6]}", 2, block, (8002, 8082), request.param, {})
    with held:
        yield lab
    for box in lab.boxes:
        process.kill_all(lab, box)
    assert process.leftovers(lab) == []


def start(lab: Lab, box: Box, code: str = KIT) -> None:
    environment = {"PATH": os.environ["PATH"], "GLM53_LAB_BOX": f"{lab.group}/{box.name}"}
    # `-m entrypoint` after the code is only words to Python: it makes the title that the lab looks for
    process.start(lab, box, [sys.executable, "-c", code, " -m entrypoint"], environment, None)


def said(box: Box) -> list[str]:
    return (box.path / "kit.log").read_text().splitlines()


def comes_up(box: Box, times: int = 1) -> None:
    assert processes.wait_until(lambda: len(said(box)) >= times, 15), said(box)


def has_engine(lab: Lab, box: Box) -> bool:
    return bool(process.find(lab, box, "worker")) and len(process.find(lab, box, "engine")) == 2


def test_kit_engine_and_worker_are_told_apart(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    assert processes.wait_until(lambda: has_engine(lab, box), 5)
    assert len(process.find(lab, box, "kit")) == 1
    assert process.find(lab, lab.boxes[1], "kit") == []


def test_a_killed_kit_is_started_again_and_a_stopped_one_is_not(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    processes.send(process.find(lab, box, "kit"), signal.SIGKILL)
    comes_up(box, times=2)
    assert process.kept(box).restarts == 1
    assert process.stop(lab, box, 5)
    assert process.kept(box).state == "stopped"
    assert process.everything(lab, box) == []


def test_with_namespaces_everything_dies_with_the_kit(lab: Lab) -> None:
    """As in a container: nothing of the old engine meets the new one."""
    if not lab.namespaces:
        return  # without them the old engine is the kit's own business at its next start
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    assert processes.wait_until(lambda: has_engine(lab, box), 5)
    old = process.find(lab, box, "engine")
    processes.send(process.find(lab, box, "kit"), signal.SIGKILL)
    comes_up(box, times=2)
    assert all(processes.look(p.pid) is None for p in old)


def test_a_refusal_is_not_tried_again(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box, "import sys; print('glm53: TP: seen 5; expected 2. Set TP.'); sys.exit(2)")
    assert processes.wait_until(lambda: process.kept(box).state == "refused", 5)
    time.sleep(0.3)
    assert len(said(box)) == 1


def test_a_kit_that_ignores_term_is_killed_after_its_grace(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box, "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)")
    comes_up(box)
    assert not process.stop(lab, box, 0.5)
    assert process.everything(lab, box) == []


def test_stop_during_the_first_moment_is_not_lost(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    assert process.stop(lab, box, 5)


def test_pause_stops_every_process_and_resume_lets_them_go_on(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    assert processes.wait_until(lambda: has_engine(lab, box), 5)
    assert process.pause(lab, box) >= 3
    assert {p.state for p in process.inside(lab, box)} == {"T"}
    process.resume(lab, box)
    assert "T" not in {p.state for p in process.inside(lab, box)}
    process.pause(lab, box)
    assert process.stop(lab, box, 5), "a paused box can be stopped"


def test_power_cut(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    process.kill_all(lab, box)
    assert process.everything(lab, box) == []
    assert process.kept(box).state == "keeper gone"


def test_commands_run_inside_the_box(lab: Lab) -> None:
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    done = process.host(lab, box).run(["sh", "-c", "echo $GLM53_LAB_BOX; ls -d /proc/[0-9]* | wc -l"], deadline_s=10)
    mark, seen = done.out.split()
    assert mark == f"{lab.group}/{box.name}"
    assert (int(seen) < 10) == lab.namespaces


def test_a_killed_keeper_takes_its_box_along(lab: Lab) -> None:
    """Or what is left is found by its mark: the fixture's end checks that nothing is."""
    box = lab.boxes[0]
    start(lab, box)
    comes_up(box)
    os.kill(process.kept(box).pid, signal.SIGKILL)
    assert processes.wait_until(lambda: not process.find(lab, box, "kit"), 5)


def test_two_labs_never_get_one_block() -> None:
    first, held = blocks.claim(2, (8002, 8082))
    second, held_too = blocks.claim(2, (8002, 8082))
    assert first != second
    assert blocks.hold(first) is None
    held.close()
    held_too.close()
    again = blocks.hold(first)
    assert again is not None
    again.close()


def test_a_block_whose_port_is_taken_is_passed_over() -> None:
    first, held = blocks.claim(2, (8002,))
    held.close()
    with socket.create_server((blocks.address(first, 2), 8002)):
        second, held = blocks.claim(2, (8002,))
    held.close()
    assert second != first


def test_the_labs_file_comes_back_as_it_was(folder: Path) -> None:
    lab = state.describe("x", 3, 7, (8002, 8082), True, {"TP": "3", "box2.TP": "4", "PEERS": "{box3}:1"})
    state.save(lab)
    assert state.load("x") == lab
    assert json.loads((folder / "x.json").read_text())["boxes"][2]["address"] == "127.0.7.13"
    assert (folder / "x.json").stat().st_mode & 0o077 == 0
    assert lab.settings_of(lab.box("1")) == {"TP": "3", "PEERS": "127.0.7.13:1"}
    assert lab.settings_of(lab.box("127.0.7.12"))["TP"] == "4"
    with pytest.raises(Refusal, match="box1, box2, box3"):
        lab.box("box4")


def test_a_command_past_its_deadline_is_refused() -> None:
    with pytest.raises(Refusal, match="still running"):
        Local().run(["sleep", "5"], deadline_s=0.1)
    with pytest.raises(Refusal, match="Install nosuchprogram"):
        Local().run(["nosuchprogram"], deadline_s=1)


# A kit whose engine holds a segment, and which noted another that an engine of its had left.
HOLDER = """
import mmap, os, sys, time
from pathlib import Path
held, left = Path(sys.argv[1]), Path(sys.argv[2])
Path("logs").mkdir(exist_ok=True)
for path in (held, left):
    path.write_bytes(bytes(4096))
Path("logs/vllm.log.family").write_text(f"pid 999999 1\\nshm {left}\\n")
with held.open("r+b") as file:
    kept = mmap.mmap(file.fileno(), 4096)
print("up", flush=True)
time.sleep(600)
"""


def test_no_segment_of_a_box_without_namespaces_stays(folder: Path) -> None:
    """What vLLM shares lies in the machine's own /dev/shm there; a killed kit cannot remove it."""
    block, claim = blocks.claim(1, (8002, 8082))
    lab = state.describe(f"t{uuid.uuid4().hex[:6]}", 1, block, (8002, 8082), False, {})
    box = lab.boxes[0]
    held, left, other = (Path("/dev/shm") / f"{lab.group}-{name}" for name in ("held", "left", "other"))
    other.touch()
    try:
        environment = {"PATH": os.environ["PATH"], "GLM53_LAB_BOX": f"{lab.group}/{box.name}"}
        process.start(
            lab, box, [sys.executable, "-c", HOLDER, str(held), str(left), " -m entrypoint"], environment, None
        )
        comes_up(box)
        assert held.exists()
        assert left.exists()
        assert any(str(held) in line for line in process.leftovers(lab))
        process.kill_all(lab, box)
        assert (held.exists(), left.exists(), other.exists()) == (False, False, True)
        assert process.leftovers(lab) == []
    finally:
        claim.close()
        for path in (held, left, other):
            path.unlink(missing_ok=True)
