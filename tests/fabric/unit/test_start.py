"""Rails that come up after the container, and what a box tells the others in the check."""

import asyncio
import random
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from core.registry import registry
from core.settings import Settings, resolve
from entrypoint.boot import Boot
from entrypoint.election import Elected
from entrypoint.stages import check, plans, rails
from preflight.checks import peers
from preflight.facts import gather
from tests.fixtures.boxes_tree import BoxSpec, group, write


def settings(**knobs: str) -> Settings:
    return resolve(registry(), knobs)


def spec() -> BoxSpec:
    return group("switch", 2, random.Random(1), plain=True)[0]


async def _late(root: Path, before: BoxSpec, after: BoxSpec, given: Settings, uptime_s: float) -> tuple[int, list[str]]:
    """How many rails the facts hold when `after` comes true 0.7 s after the start, and what was said meanwhile."""
    write(before, root)
    said: list[str] = []
    waiting = asyncio.ensure_future(rails.settled(root, ("/",), given, said.append, uptime_s))
    await asyncio.sleep(0.7)
    done = waiting.done()
    write(after, root)
    facts = await waiting
    boot = Boot({}, root=root)
    boot.facts = facts
    assert done == (not said)
    return len([one for one in rails.box_rails(boot, given) if one.gid_index is not None]), said


def test_a_start_waits_for_an_address_that_comes_late(trees: Path) -> None:
    bare = spec()
    for port in bare.ports:
        port.address = None
        port.fill_gids(random.Random(1))
    count, said = asyncio.run(_late(trees / "a", bare, spec(), settings(), uptime_s=30.0))
    assert count == 2
    assert said[0].startswith("waiting for link and address of enP2p1s0f0np0, enp1s0f0np0 (at most 60 s")
    assert asyncio.run(_late(trees / "b", bare, spec(), settings(), uptime_s=90_000.0)) == (0, [])
    assert asyncio.run(_late(trees / "c", bare, spec(), settings(FABRIC_WAIT_S="5"), uptime_s=90_000.0))[0] == 2
    assert asyncio.run(_late(trees / "d", bare, spec(), settings(FABRIC_WAIT_S="0"), uptime_s=30.0)) == (0, [])


def test_a_start_waits_for_the_gid_of_an_address(trees: Path) -> None:
    bare = spec()
    for port in bare.ports:
        port.gids = port.gids[:2]
    count, said = asyncio.run(_late(trees / "a", bare, spec(), settings(), uptime_s=90_000.0))
    assert count == 2
    assert said[0].startswith("waiting for the GID of rocep1s0f0 (198.18.0.1), roceP2p1s0f0")
    assert asyncio.run(_late(trees / "b", bare, spec(), settings(ROCE_SETTLE_S="0"), uptime_s=30.0))[1] == []


def test_a_box_without_a_fabric_waits_for_nothing(trees: Path) -> None:
    lab = spec()
    lab.ports = []
    assert asyncio.run(_late(trees, lab, lab, settings(FABRIC_WAIT_S="60"), uptime_s=1.0)) == (0, [])


def test_what_a_box_tells_in_the_check(trees: Path) -> None:
    write(spec(), trees)
    boot = Boot({}, root=trees)
    boot.facts, boot.image = gather(trees), {"id": "sha256:0123456789abcdef", "patched_tree": "fedc"}
    given = settings(READY_S="99", LAN_ADDRESS="10.0.0.9", MAX_MODEL_LEN="4096")
    found = check.facts(boot, given, rails.box_rails(boot, given))
    assert (found["rails"], found["NIC firmware"]) == ("2", "28.45.4028")
    assert (found["image"], found["patched tree"]) == ("0123456789ab", "fedc")
    assert found["knob READY_S"] == "99"
    assert not [name for name in found if "LAN_ADDRESS" in name or "MAX_MODEL_LEN" in name]


def _member(specs: list[BoxSpec], trees: Path, at: int, monkeypatch: pytest.MonkeyPatch, **knobs: str) -> Boot:
    """Box `at` of a group as its boot stands after the election."""
    members = {one.lan.partition("/")[0]: gather(write(one, trees / one.hostname)).interfaces for one in specs}
    mine = specs[at].lan.partition("/")[0]
    boot = Boot({}, root=trees / specs[at].hostname, lan=mine, tp=len(specs))
    boot.settings, boot.facts = settings(**knobs), gather(trees / specs[at].hostname)
    boot.elected = Elected(tuple(sorted(members, key=IPv4Address)), "", "")
    monkeypatch.setattr(
        rails, "all_rails", lambda boot, given: {lan: peers.rails_of(held) for lan, held in members.items()}
    )
    boot.layout, _, _ = rails.cabling(boot, boot.settings)
    rails.in_rank_order(boot)
    boot.group_plan = plans.trial_plan(boot, boot.settings)
    return boot


def test_a_ring_is_found_by_itself_and_every_box_comes_to_the_same_plan(
    trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = group("ring", 4, random.Random(1), plain=True)
    boots = [_member(specs, trees, at, monkeypatch, TP="4") for at in range(4)]
    plans = [boot.group_plan for boot in boots]
    assert {plan.topology for plan in plans if plan} == {"ring"}
    assert {boot.elected.order for boot in boots if boot.elected} == {
        ("192.168.0.10", "192.168.0.11", "192.168.0.12", "192.168.0.13")
    }
    asked = rails.wanted(boots[0], settings())
    assert asked.loop


def test_a_box_of_a_ring_writes_its_graph_for_nccl(
    trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = group("ring", 4, random.Random(1), plain=True)
    given = settings(STATE_DIR=str(tmp_path))
    boot = _member(specs, trees, 0, monkeypatch)
    assert "NCCL_GRAPH_FILE" not in rails.fabric_nccl(boot, given, "lo"), "nobody has listed the devices"
    boot.verbs_order = tuple(port.device for port in specs[0].ports)
    found = rails.fabric_nccl(boot, given, "lo")
    assert found["NCCL_ALGO"] == "Ring"
    assert (tmp_path / "nccl-ring.xml").read_text().count("<channel>") == 8
    assert found["NCCL_GRAPH_FILE"] == str(tmp_path / "nccl-ring.xml")


def test_wrong_cabling_is_a_row_by_itself_and_a_refusal_where_a_ring_was_asked_for(
    trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = group("ring", 4, random.Random(1), plain=True)
    specs[2].ports = specs[2].ports[:2]
    boot = _member(specs, trees, 0, monkeypatch)
    layout, rows, wrong = rails.cabling(boot, settings())
    assert (layout, wrong) == (None, ())
    assert any(row.name == "cabling" and "192.168.0.12" in row.seen for row in rows)
    assert rails.cabling(boot, settings(TOPOLOGY="ring"))[2]


def test_all_boxes_measure_the_same_things_apart_when_one_has_fewer_roots(
    trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = group("switch", 3, random.Random(1), plain=True)
    specs[1].ports = specs[1].ports[:1]
    boots = [_member(specs, trees, at, monkeypatch) for at in range(3)]
    mine = [rails.box_rails(boot, settings()) for boot in boots]
    told = {at: check.facts(boot, settings(), mine[at]) for at, boot in enumerate(boots)}
    assert [held["PCIe roots"] for held in told.values()] == ["2", "1", "2"]
    fewest = check._fewest(told, "PCIe roots")
    lists = {tuple(check._variants(boot, mine[at], fewest)) for at, boot in enumerate(boots)}
    assert lists == {("Ring", "Tree")}
    assert tuple(check._variants(boots[0], mine[0], 2)) == ("Ring", "Tree", "root 0", "root 1")


def test_what_changed_while_a_group_was_down_is_told_with_the_next_incarnation(trees: Path) -> None:
    mine = spec()
    boot = Boot({}, root=write(mine, trees))
    boot.facts = gather(trees)
    mine.ports[0].mtu = 1500
    write(mine, trees)
    assert {one.mtu for one in boot.facts.interfaces if one.connectx} == {9000}
    rails.look_again(boot)
    assert {one.mtu for one in boot.facts.interfaces if one.connectx} == {9000, 1500}
