"""Recorded cases (tests/fixtures/boxes_cases.toml): named as they were found, silent as they should be set up."""

import random
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.row import Row
from entrypoint.topology import Layout, layout
from preflight.checks import Wanted, peers, preflight
from tests.fabric.scenes import WANTED, faults, scene
from tests.fixtures.boxes_tree import FAULTS, GIB, BoxSpec, Port, group, memory

FILE = Path(__file__).resolve().parents[2] / "fixtures/boxes_cases.toml"
CASES: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["case"]
# Field reports whose row comes out of a measurement or of another room; where they are tried instead.
ELSEWHERE = {
    4: "tests/fabric/unit/test_verdict.py",
    17: "tests/fabric/unit/test_verdict.py",
    23: "tests/main/unit/test_facts.py",
    25: "tests/main/unit/test_facts.py",
    27: "tests/fabric/unit/test_topology.py",
    42: "tests/fabric/unit/test_verdict.py",
    75: "tests/fabric/unit/test_checks.py",
}


def _port(port: Port, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name == "gids":
            own = "::ffff:" + str(port.address).partition("/")[0]
            port.gids = [
                (text.split()[0].replace("4:", own), text.partition(" ")[2]) if text else None for text in value
            ]
        elif name == "address":
            port.address = value or None
            port.fill_gids(random.Random(2))
        else:
            setattr(port, name, value)


def _edit(specs: list[BoxSpec], edit: dict[str, Any]) -> None:
    values = dict(edit)
    spec = specs[values.pop("box")]
    where = values.pop("port", None)
    if where is not None:
        for port in spec.ports if where == "all" else [spec.ports[where]]:
            _port(port, values)
        return
    if "drop" in values:
        spec.ports = [port for port in spec.ports if port.netdev not in values["drop"]]
    elif "memory_gib" in values:
        spec.memory = memory(**{name: value * GIB for name, value in values["memory_gib"].items()})
    elif "others" in values:
        spec.others = [tuple(other) for other in values["others"]]
    else:
        for name, value in values.items():
            setattr(spec, name, value)


def _seen(specs: list[BoxSpec], wanted: Wanted, root: Path) -> list[Row]:
    """All faults of the group: every box's own first, then what the boxes' rails say together."""
    rows: list[Row] = []
    rails = {}
    for spec in specs:
        one = scene(spec, root / spec.hostname, wanted)
        rows += faults(preflight(one))
        rails[spec.lan.partition("/")[0]] = one.rails
    found = layout(rails)
    together = () if isinstance(found, Layout) else peers.cabling(found)
    return [*rows, *together, *peers.compare(rails)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_is_named_and_its_healthy_twin_is_silent(case: dict[str, Any], trees: Path) -> None:
    rng = random.Random(1)
    kind, count = case.get("layout", "switch"), case.get("boxes", 1)
    wanted = WANTED
    specs = group(kind, count, rng, plain=True)
    assert _seen(specs, wanted, trees) == [], "the healthy twin"
    if "fault" in case:
        FAULTS[case["fault"]][0](specs[0], rng)
    for edit in case.get("edits", []):
        _edit(specs, edit)
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case.get("wanted", {}).items()
    }
    rows = _seen(specs, replace(wanted, **given), trees)
    if case.get("silent"):
        assert rows == []
        return
    assert rows, "nothing is said"
    assert rows[0].name == case["expect"], rows
    assert case["says"] in rows[0].seen, rows[0]
    assert case.get("cure", "") in rows[0].cure
    assert rows[0].cure
    assert rows[0].link.startswith("docs/troubleshooting.md#")


def test_there_are_forty_cases_and_every_field_report_of_the_issue_has_a_place() -> None:
    assert len(CASES) >= 40
    wanted = {*range(1, 11), 12, 15, 16, 17, 19, 20, 21, 23, 25, 27, 29, 31, 33, 42, 48, 52, 54, 59, 60, 75}
    held = {number for case in CASES for number in case.get("field", [])}
    assert wanted - held == set(ELSEWHERE)
    for path in ELSEWHERE.values():
        assert (FILE.parents[2] / path).is_file()
