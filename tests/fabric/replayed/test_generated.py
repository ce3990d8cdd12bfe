"""Generated fabrics, healthy and with one fault each: no setting is needed, and the first thing to fix names the fault.

Every case is a file tree on disk, read by the same code that reads a box. The seed in a failure's text repeats it.
"""

import random
from pathlib import Path

import pytest

from entrypoint.topology import Layout, layout
from preflight.checks import peers, preflight
from tests.fabric.scenes import check, faults, scene
from tests.fixtures.boxes_tree import FAULTS, group

LAYOUTS = [("switch", 1), ("switch", 2), ("two cables", 2), ("switch", 3), ("switch", 4), ("switch", 6)]
LOOPS = [("ring", 4), ("triangle", 3)]


def healthy(seed: int, root: Path) -> None:
    rng = random.Random(seed)
    kind, count = rng.choice(LAYOUTS + LOOPS * 2)
    specs = group(kind, count, rng)
    rails = {}
    for spec in specs:
        seen = scene(spec, root / spec.hostname)
        lan = spec.lan.partition("/")[0]
        rails[lan] = seen.rails
        expected = {(port.device, str(port.address).partition("/")[0]) for port in spec.ports}
        assert {(rail.device, rail.address) for rail in seen.rails} == expected, f"seed {seed}: {spec.hostname}"
        for rail in seen.rails:
            port = next(port for port in spec.ports if port.device == rail.device)
            assert rail.gid_index is not None
            assert port.gids[rail.gid_index] == (f"::ffff:{rail.address}", "RoCE v2"), f"seed {seed}"
        wrong = faults(preflight(seen))
        assert not wrong, f"seed {seed}: {wrong[0]}"
    found = layout(rails)
    assert isinstance(found, Layout), f"seed {seed}: {found}"
    assert found.topology == (kind if kind in ("ring", "triangle") else "switch"), f"seed {seed}"
    assert not peers.compare(rails), f"seed {seed}"


def broken(seed: int, root: Path) -> None:
    rng = random.Random(seed)
    kind, count = rng.choice(LAYOUTS + LOOPS)
    spec = rng.choice(group(kind, count, rng))
    fault = list(FAULTS)[seed % len(FAULTS)]
    inject, expected = FAULTS[fault]
    inject(spec, rng)
    wrong = check(spec, root / "box")
    assert wrong, f"seed {seed}: {fault} is not seen"
    assert wrong[0].name == expected, f"seed {seed}: {fault} is called {wrong[0]}"


def test_250_healthy_groups_need_no_setting_and_warn_of_nothing(trees: Path) -> None:
    for seed in range(250):
        healthy(seed, trees)


def test_250_boxes_with_one_fault_have_it_as_the_first_thing_to_fix(trees: Path) -> None:
    for seed in range(250):
        broken(seed, trees)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1000, 3500, 250))
def test_5000_more(trees: Path, first: int) -> None:
    for seed in range(first, first + 250):
        healthy(seed, trees)
        broken(seed, trees)
