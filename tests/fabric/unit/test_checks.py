"""The table of checks: complete against the original, documented, and never more than rows about garbage."""

import ast
import json
import random
from pathlib import Path

import pytest

from core.registry import registry
from core.settings import lenient, resolve
from fabric import verdict as measured
from launcher.verbs import doctor
from preflight.checks import CHECKS, Scene, Wanted, peers, preflight, verdict
from preflight.checks.scene import anchor
from preflight.facts.survey import survey
from preflight.facts.types import Interface
from preflight.recording import record, replayed
from tests.fabric.scenes import WANTED, faults, scene
from tests.fixtures.boxes_tree import BoxSpec, group, write

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("preflight", "fabric", "image", "entrypoint")
# What the original's preflight lists, in its words (reported in its README).
SEED = (
    "a fabric port down or below 200 Gb/s",
    "a port MTU too small for RoCE's 4096-byte path MTU",
    "a PCIe link below its maximum",
    "one ConnectX root instead of two",
    "link flaps",
    "RDMA retransmit counters",
    "GPU clock-limit events",
    "other GPU processes",
    "too little host memory for the TP size and KV pin",
    "page cache the GPU cannot use yet",
    "swap in use",
    "a model directory on NFS",
    "no disk for the first weight snapshot",
    "a memlock limit",
    "a running desktop session",
)


def plain() -> BoxSpec:
    return group("switch", 2, random.Random(1), plain=True)[0]


def test_every_row_of_the_original_has_a_check() -> None:
    assert len(SEED) == 15
    assert set(SEED) <= {check.seed for check in CHECKS}


def _linked() -> set[str]:
    """Names that get a link: those of the tables, and literals at a call of `link_to` or of a helper that calls it."""
    names = {check.name for check in CHECKS} | {*peers.NAMES, *measured.NAMES}
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    for path in files:
        tree = ast.parse(path.read_text())
        helpers = {
            one.name
            for one in tree.body
            if isinstance(one, ast.FunctionDef) and "link_to(name)" in ast.unparse(one) and one.args.args
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
            called, first = getattr(call.func, "id", ""), call.args[0]
            if called in {"link_to", *helpers} and isinstance(first, ast.Constant) and isinstance(first.value, str):
                names.add(first.value)
    return names


def test_every_row_links_to_a_section_and_every_section_is_reached() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    names = _linked()
    assert "chat template" in names
    known = {anchor(heading) for heading in headings}
    assert {anchor(name) for name in names} <= known
    # Sections that no row leads to are reached by a text of the kit that names them.
    texts = "".join(path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    assert [heading for heading in headings if heading not in names and heading not in texts] == []
    assert len({anchor(heading) for heading in headings}) == len(headings)


def test_a_missing_or_empty_shard_is_named(tmp_path: Path, trees: Path) -> None:
    """Field report 75: the download says complete, the files are not."""
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_text("x")
    (tmp_path / "model-2.safetensors").write_text("")
    wanted = Wanted(model=str(tmp_path), boxes=4)
    first = faults(preflight(scene(plain(), trees / "a", wanted)))[0]
    assert first.name == "model files"
    assert "model-2.safetensors, model-3.safetensors missing" in first.seen
    (tmp_path / "model-2.safetensors").write_text("x")
    (tmp_path / "model-3.safetensors").write_text("x")
    (tmp_path / "generation_config.json").write_text("{}")
    assert not faults(preflight(scene(plain(), trees / "b", wanted)))


def test_the_last_line_is_the_first_thing_to_fix(trees: Path) -> None:
    spec = plain()
    spec.kernel, spec.units = "7.0.0-1019-nvidia", ["gdm"]
    rows = preflight(scene(spec, trees / "a"))
    assert verdict(rows).startswith("first thing to fix: kernel: 7.0.0-1019-nvidia")
    assert verdict(preflight(scene(plain(), trees / "b"))) == "nothing to fix"


def test_a_recording_says_what_the_box_said_and_not_who_it_is(trees: Path, tmp_path: Path) -> None:
    spec = plain()
    spec.hostname, spec.units = "secret-name", ["gdm", "private-unit"]
    spec.others = [("wan0", "8.8.4.4/24", "nic")]
    write(spec, trees)
    seen = survey(trees)
    out = tmp_path / "box.tar"
    assert record(seen, out, trees) > 30
    held = out.read_bytes()
    assert not [word for word in (b"secret-name", b"private-unit", b"8.8.4.4") if word in held]
    with replayed(out) as root:
        again = preflight(Scene(survey(root), WANTED))
    names = [(row.name, row.level) for row in preflight(Scene(seen, WANTED))]
    assert [(row.name, row.level) for row in again] == names


def test_doctor_replays_a_recording_with_a_status_by_level(
    trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for status, kernel, units in ((0, "6.17", []), (1, "6.17", ["gdm"]), (2, "7.0.0-1019-nvidia", [])):
        spec = plain()
        spec.kernel, spec.units = kernel, units
        root = trees / str(status)
        write(spec, root)
        out = tmp_path / f"{status}.tar"
        record(survey(root), out, root)
        assert doctor.run(["--json", "--replay", str(out)]) == status
        document = json.loads(capsys.readouterr().out)
        assert (document["first"] is None) == (status == 0)
        assert "enP2p1s0f0np0" in document["netplan"]


def test_off_and_strict_are_values_of_both_knobs() -> None:
    for text in ("0", "1", "strict"):
        settings = resolve(registry(), {"PREFLIGHT": text, "FABRIC_CHECK": text})
        assert settings.text("PREFLIGHT") == settings.text("FABRIC_CHECK") == text
    _, refused = lenient(registry(), {"FABRIC_CHECK": "yes"})
    assert "strict" in str(refused[0])


def test_the_ends_of_one_wire_are_compared_by_what_boxes_publish() -> None:
    """MTU, speed and prefix length of the other end, from the interfaces that every box tells."""

    def told(host: int, **values: object) -> tuple[Interface, ...]:
        given = {"mtu": 9000, "carrier": True, "connectx": True, "speed": 200_000, "length": 24, **values}
        address = f"198.18.0.{host}/{given.pop('length')}"
        return (Interface("enp1s0f0np0", (address,), **given),)  # type: ignore[arg-type]

    def said(**values: object) -> list[str]:
        members = {"10.0.0.1": told(1), "10.0.0.2": told(2, **values)}
        rows = peers.compare({lan: peers.rails_of(held) for lan, held in members.items()})
        return [f"{row.name}: {row.seen}" for row in rows]

    assert said() == []
    assert said(speed=0) == [], "a box that does not tell its speed"
    assert said(speed=100_000) == ["both ends: 198.18.0.0/24: 100 Gb/s on 10.0.0.2 enp1s0f0np0, 200 elsewhere"]
    assert said(mtu=1500) == ["both ends: 198.18.0.0/24: MTU 1500 on 10.0.0.2 enp1s0f0np0, 9000 elsewhere"]
    assert said(length=16)[0].startswith("both ends: subnets overlap: 198.18.0.0/24 on 10.0.0.1 enp1s0f0np0")
