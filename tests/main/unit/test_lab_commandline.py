"""What a user types at `./glm53 lab`, and labs that meet themselves: refused in one line, before a box starts."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.refusal import Refusal, Refusals
from lab import blocks, cluster, state
from lab.providers import process
from launcher.__main__ import main
from launcher.verbs import lab as verb


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "home", lambda: tmp_path / ".lab")
    monkeypatch.setattr(process, "namespaces_permitted", lambda: False)
    return tmp_path / ".lab"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--name ../../x up", "--name: seen '../../x'"),
        ("--name ../../x down", "--name: seen '../../x'"),
        ("--name . status", "--name: seen '.'"),
        ("up --boxes 9", "--boxes: seen 9"),
        ("up --boxes 5", "--boxes: seen 5"),
        ("up --tp 5", "TP: seen '5'"),
        ("up --tp four", "TP: seen 'four'"),
        ("up --set TP", "--set: seen TP"),
        ("up --set =3", "--set: seen =3"),
        ("up --set NOPE=3", "NOPE: seen a name that nothing reads"),
        ("up --set MAX_NUM_SEQ=3", "MAX_NUM_SEQS, one letter away"),
        ("up --set box7.TP=3", "--set: seen box7.TP"),
        ("up --set bax1.TP=3", "--set: seen bax1.TP"),
        ("up --set API_PORT=x", "API_PORT: seen 'x'"),
        ("up --set STATUS_PORT=0", "STATUS_PORT: seen '0'"),
        ("up --set box2.API_PORT=9000", "--set: seen box2.API_PORT"),
        ("up --stagger -5", "--stagger: seen -5"),
        ("up --stagger 0 nan", "--stagger: seen nan"),
        ("up --stagger 1 2 3", "--stagger: seen 3 seconds"),
        ("up --timeout -1", "--timeout: seen -1"),
        ("up --timeout inf", "--timeout: seen inf"),
    ],
)
def test_a_slip_is_one_line_and_exit_2(words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *words.split()]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert not folder.exists(), "nothing was written"


def test_values_of_a_fault_that_only_the_kit_knows_are_left_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A lab is there to try faults: a knob's bad value reaches the box, when the lab itself does not need it."""
    options = verb._parser().parse_args(["up", "--set", "box2.LIMIT_MM={", "--set", "KV_CACHE_MEMORY=-1"])
    assert verb._settings(options) == (2, {"box2.LIMIT_MM": "{", "KV_CACHE_MEMORY": "-1"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "lab"}'])
def test_an_unreadable_description_says_which_file(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    (folder / "lab.json").write_text(text)
    assert main(["lab", "status"]) == 2
    assert f"rm {folder / 'lab.json'}" in capsys.readouterr().err


def test_two_labs_of_one_name_at_once(folder: Path) -> None:
    """The second `lab up` finds the first still installing: no box of it is up yet."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom lab import cluster, state\nfrom lab.providers import process\n"
        f"state.home = lambda: Path({str(folder)!r})\n"
        "process.namespaces_permitted = lambda: False\n"
        "lab, held = cluster.create('lab', 2, {})\nprint('made', flush=True)\nsys.stdin.read()\n"
    )
    first = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "made\n"
    try:
        with pytest.raises(Refusal, match="being brought up"):
            cluster.create("lab", 2, {})
        with pytest.raises(Refusal, match="being brought up"):
            cluster.down(state.load("lab"))
        assert json.loads((folder / "lab.json").read_text())["name"] == "lab"
    finally:
        first.communicate()
    lab, held = cluster.create("lab", 2, {})  # what a killed `lab up` left is taken over
    held.close()
    assert cluster.down(lab) == []


def test_a_box_of_a_lab_that_was_taken_down_meanwhile_does_not_start(folder: Path) -> None:
    lab, held = cluster.create("lab", 2, {})
    with held:
        cluster.down(lab)
        with pytest.raises(Refusal, match="taken down"):
            cluster.start(lab, lab.boxes[0], held)


def test_ports_that_somebody_holds_on_every_address_are_named() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Refusal, match=rf"port {port}: seen in use"):
            blocks.claim(2, (port, 8082))


@pytest.fixture
def terminal() -> Iterator[None]:
    """Signals as a terminal has them: under nohup HUP is ignored, in a background job of a script INT; both stay so."""
    before = {one: signal.getsignal(one) for one in (signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_told_end_takes_the_lab_down(number: signal.Signals, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def start_all(*_: object) -> float:
        os.kill(os.getpid(), number)
        raise AssertionError("it went on")

    monkeypatch.setattr(cluster, "start_all", start_all)
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert main(["lab", "up"]) == 128 + number
    assert not (folder / "lab.json").exists()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_reader_that_goes_away_takes_the_lab_down(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """`./glm53 lab up | head -1`."""

    def start_all(*_: object) -> float:
        raise BrokenPipeError

    monkeypatch.setattr(cluster, "start_all", start_all)
    assert main(["lab", "up"]) == 1
    assert not (folder / "lab.json").exists()


def test_a_full_disk_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def save(lab: state.Lab) -> None:
        raise OSError(28, "No space left on device", "/somewhere/lab.json")

    monkeypatch.setattr(state, "save", save)
    assert main(["lab", "up"]) == 2
    said = capsys.readouterr().err
    assert "/somewhere/lab.json: seen No space left on device" in said
    assert "Traceback" not in said


def test_a_box_that_is_down_is_neither_paused_nor_resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab, held = cluster.create("lab", 2, {})
    held.close()
    for words in ("pause", "resume", "kill", "exec"):
        assert main(["lab", words, "box1", *(["true"] if words == "exec" else [])]) == 2
        assert "box1" in capsys.readouterr().err
    assert main(["lab", "logs", "box1", "-n", "0"]) == 2
    assert main(["lab", "logs", "box1"]) == 2
    assert main(["lab", "pause", "box3"]) == 2
    cluster.remove(lab)


def test_the_docker_provider_without_docker(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["lab", "up", "--provider", "docker"]) == 2
    assert "docker, which is not installed" in capsys.readouterr().err
    assert not (folder / "lab.json").exists()


def test_refusals_of_several_kinds_come_together() -> None:
    options = verb._parser().parse_args(["up", "--set", "NOPE=1", "--set", "NOPE2=1"])
    with pytest.raises(Refusals) as found:
        verb._settings(options)
    assert len(found.value.refusals) == 2
