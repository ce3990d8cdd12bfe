"""Registering a real buffer: through a library of devices that cannot exist here, and where there is none."""

import errno
import subprocess
from pathlib import Path

import pytest

from preflight.checks import Scene, preflight
from preflight.facts.registration import Registration, Tried, probe
from tests.fabric.scenes import WANTED, faults, scene
from tests.fixtures.boxes_tree import group

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("verbs") / "libfake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", out, HERE / "verbs.c"], check=True)
    return str(out)


def test_a_buffer_is_registered_on_every_device_and_all_is_given_back(library: str) -> None:
    found = probe(1 << 20, library)
    assert [(one.device, one.bytes, one.error) for one in found.tried] == [
        ("rocep1s0f0", 1 << 20, ""),
        ("roceP2p1s0f0", 1 << 20, ""),
    ]
    assert not found.absent


def test_the_failing_device_call_and_errno_are_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ERRNO", str(errno.ENOMEM))
    found = probe(1 << 20, library)
    assert [one.error for one in found.tried] == ["", "ibv_reg_mr: ENOMEM"]


def test_no_library_and_no_device_are_said_and_are_no_fault(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe(1 << 20, "libnowhere.so").absent == "libnowhere.so is not here"
    monkeypatch.setenv("FAKE_NONE", "1")
    assert "no device" in probe(1 << 20, library).absent


def test_a_probe_that_hangs_or_prints_rubbish_is_ended_and_told(library: str) -> None:
    assert probe(1 << 20, library, longest_s=0.001).hung
    assert "status" in probe(-1, library).absent


def _rows(found: Registration | None, trees: Path) -> list[tuple[str, str]]:
    import random
    from dataclasses import replace

    one = scene(group("switch", 2, random.Random(1), plain=True)[0], trees / "box")
    told = Scene(replace(one.survey, registered=found), WANTED)
    assert all(row.name == "memory registration" for row in faults(preflight(told)))
    return [(row.level, row.seen) for row in preflight(told) if row.name == "memory registration"]


def test_what_the_row_says(trees: Path) -> None:
    assert _rows(None, trees) == [("ok", "nothing wrong")]
    assert _rows(Registration((Tried("a", 64 << 20, 0.01),)), trees) == [("info", "64MiB registered: a 0.010 s")]
    assert _rows(Registration(absent="x is not here"), trees) == [("info", "registration not tried: x is not here")]
    assert _rows(Registration(absent="did not end", hung=True), trees)[0][0] == "WARN"
    level, seen = _rows(Registration((Tried("a", 1, 0.0), Tried("b", 64 << 20, 0.0, "ibv_reg_mr: ENOMEM"))), trees)[0]
    assert (level, seen) == ("FAIL", "registering 64MiB on b: ibv_reg_mr: ENOMEM")
