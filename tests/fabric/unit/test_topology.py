"""Rails into a layout: a switch, a ring or a triangle, rank order, NCCL's block, and wrong cabling by name."""

import itertools
import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from entrypoint.roce import Rail, nccl_environment
from entrypoint.topology import Layout, layout, nccl_block, neighbour_devices, ring_graph
from preflight.checks import peers
from tests.fixtures.boxes_tree import cables, twins


def rails(kind: str, count: int, shuffle: list[int] | None = None) -> dict[str, list[Rail]]:
    """lan -> rails; `shuffle` puts the boxes in another order around the loop."""
    order = shuffle or list(range(count))
    found: dict[str, list[Rail]] = {f"10.0.0.{box + 1}": [] for box in range(count)}
    for wire, ends in enumerate(cables(kind, count)):
        for place, port in ends:
            box = order[place]
            for root, (netdev, device, function) in enumerate(twins(port, port)):
                network = f"198.{18 + root}.{wire}"
                found[f"10.0.0.{box + 1}"].append(
                    Rail(device, netdev, f"{network}.{box + 1}", f"{network}.0/24", 3 + root, 200.0, 9000, function)
                )
    return found


def loop(kind: str, count: int, order: list[int] | None = None) -> Layout:
    found = layout(rails(kind, count, order))
    assert isinstance(found, Layout)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_one_subnet_for_all_is_a_switch(count: int) -> None:
    found = loop("switch", count)
    assert found.topology == "switch"
    assert nccl_block(found, rails("switch", count), "10.0.0.1") == {}


@pytest.mark.parametrize(("kind", "count"), [("ring", 4), ("triangle", 3)])
def test_however_the_cables_run_the_ranks_follow_them(kind: str, count: int) -> None:
    for order in itertools.permutations(range(count)):
        found = loop(kind, count, list(order))
        assert found.topology == kind
        assert found.order[0] == "10.0.0.1"
        near = {frozenset(cable.members) for cable in found.cables}
        for mine, after in zip(found.order, (*found.order[1:], found.order[0]), strict=True):
            assert frozenset({mine, after}) in near


def test_the_head_starts_the_order() -> None:
    found = layout(rails("ring", 4), head="10.0.0.3")
    assert isinstance(found, Layout)
    assert found.order == ("10.0.0.3", "10.0.0.2", "10.0.0.1", "10.0.0.4")


def test_a_ring_gets_both_devices_to_each_neighbour_and_no_trees() -> None:
    seen = rails("ring", 4)
    found = loop("ring", 4)
    before, after = neighbour_devices(found, seen, "10.0.0.1")
    assert {*before, *after} == {"rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"}
    block = nccl_block(found, seen, "10.0.0.1")
    assert block["NCCL_ALGO"] == "Ring"
    assert block["NCCL_CROSS_NIC"] == "1"
    assert "NCCL_IB_GID_INDEX" not in block


def test_a_triangle_routes_by_subnet_and_keeps_trees() -> None:
    block = nccl_block(loop("triangle", 3), rails("triangle", 3), "10.0.0.2")
    assert block["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert "NCCL_ALGO" not in block


@pytest.mark.parametrize("seed", range(20))
def test_a_cable_that_is_missing_or_moved_is_named(seed: int) -> None:
    rng = random.Random(seed)
    kind, count = rng.choice([("ring", 4), ("triangle", 3)])
    seen = rails(kind, count)
    lan = rng.choice(sorted(seen))
    gone = rng.choice(seen[lan]).network
    seen[lan] = [rail for rail in seen[lan] if rail.network.split(".")[2] != gone.split(".")[2]]
    found = layout(seen, kind)
    assert isinstance(found, tuple)
    assert any(lan in str(one) for one in found)
    assert all(one.cure for one in found)


def test_a_ring_of_three_boxes_asked_for_is_refused() -> None:
    found = layout(rails("switch", 3), "ring")
    assert isinstance(found, tuple)
    assert "triangle" in str(found[0])


def test_one_gid_index_is_given_only_when_all_rails_agree() -> None:
    mine = rails("switch", 2)["10.0.0.1"]
    apart = nccl_environment(mine, "enp1s0f0np0")
    assert "NCCL_IB_GID_INDEX" not in apart
    assert apart["NCCL_IB_ROCE_VERSION_NUM"] == "2"
    assert apart["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0"
    same = nccl_environment(mine[:1], "enp1s0f0np0")
    assert same["NCCL_IB_GID_INDEX"] == "3"
    assert all(
        nccl_environment([], name) == ({"NCCL_SOCKET_IFNAME": f"={name}"} if name else {}) for name in ("", "lo")
    )


def test_every_channel_of_a_ring_receives_from_the_previous_box_and_sends_to_the_next() -> None:
    seen, found = rails("ring", 4), loop("ring", 4)
    for lan in found.order:
        before, after = neighbour_devices(found, seen, lan)
        order = ["mlx5_bond_0", *sorted({*before, *after}, reverse=True)]
        graph = ElementTree.fromstring(ring_graph(before, after, order)).find("graph")
        assert graph is not None
        chosen = [name for name in order if name in {*before, *after}]
        channels = [
            [(part.tag, int(part.attrib["dev"], 16)) for part in channel] for channel in graph.findall("channel")
        ]
        assert len(channels) == int(graph.attrib["nchannels"]) == 8
        for number, ((net, receive), gpu, (other, send)) in enumerate(channels):
            assert (net, gpu, other) == ("net", ("gpu", 0), "net")
            assert chosen[receive] == before[number % 2]
            assert chosen[send] == after[number % 2]


def test_a_ring_without_a_known_order_of_devices_gets_no_graph() -> None:
    before, after = neighbour_devices(loop("ring", 4), rails("ring", 4), "10.0.0.1")
    assert ring_graph(before, after, ()) == ""
    assert ring_graph(before, after, after) == ""
    assert ring_graph((), (), ("a",)) == ""
    block = nccl_block(loop("ring", 4), rails("ring", 4), "10.0.0.1")
    assert "NCCL_GRAPH_FILE" not in block


@pytest.mark.parametrize(("kind", "count"), [("ring", 4), ("triangle", 3)])
def test_link_local_addresses_on_a_loop_are_named(kind: str, count: int) -> None:
    seen = {
        lan: [replace(rail, network="169.254.0.0/16", address=f"169.254.{at}.{box}") for at, rail in enumerate(mine)]
        for box, (lan, mine) in enumerate(rails(kind, count).items())
    }
    found = layout(seen, kind)
    assert isinstance(found, tuple)
    assert "169.254/16" in found[0].seen
    assert "subnet of its own" in found[0].cure
    assert isinstance(layout(seen), Layout), "by itself it could be a switch"
    assert [row.name for row in peers.compare(seen)] == ["cabling"]
    one_port = {lan: mine[:2] for lan, mine in seen.items()}
    assert peers.compare(one_port) == (), "one port a box is a switch for sure"
