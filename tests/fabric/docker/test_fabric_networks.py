"""The fabric check between containers of the image, on a LAN and two fabric networks: box and cause are named.

The kit, the image's torch, the all-reduce and the faults are real; only the vendor of a netdev is not ConnectX's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import cluster
from lab.providers import docker
from lab.state import Lab
from tests.fabric.docker.boxes import netdevs, started
from tests.fixtures.docker_engine import docker_engine

DONE = "stage=fabric done"
CHECK = {"FABRIC_CHECK": "1", "FABRIC_CHECK_BYTES": "2MiB", "SELF_TEST": "0", "ENGINE_PYTHON": "/test/python.sh"}


def test_a_network_is_found_by_its_subnet_whatever_its_netdev_is_called() -> None:
    links = [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1"}]},
        {
            "ifname": "eth2",
            "addr_info": [{"family": "inet", "local": "172.31.7.11"}, {"family": "inet6", "local": "::1"}],
        },
        {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "172.29.7.130"}]},
        {"ifname": "eth1", "addr_info": [{"family": "inet", "local": "172.29.7.2"}]},
    ]
    assert netdevs(links, docker.subnets(7)) == {"lan": "eth2", "fabric1": "eth0", "fabric0": "eth1"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    docker_engine()
    made, held = cluster.create("fabric", 3, CHECK, provider="docker")
    try:
        with held:
            docker.prepare(made)
            yield made
    finally:
        cluster.down(made, grace_s=5)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_healthy_group_is_silent_and_reduces_over_the_first_fabric_network(lab: Lab) -> None:
    with started(lab) as scenario:
        scenario.go()
        scenario.until(DONE)
        assert [scenario.faults(number) for number in (1, 2, 3)] == [[], [], []]
        for box in scenario.lab.boxes:
            assert scenario.received(box, "fabric0") > 8 << 20, box.name
            assert scenario.received(box, "lan") < 4 << 20, box.name


@pytest.mark.full
def test_a_detached_network_a_lowered_mtu_and_a_stale_overlay_file_are_named_in_one_start(lab: Lab) -> None:
    with started(lab, overlay={"box1": "pass  # of last week\n"}) as scenario:
        second, third = scenario.box(2), scenario.box(3)
        scenario.disconnect(second, "fabric1")
        netdev = scenario.netdev(third, "fabric0")
        scenario.inside(third, "ip", "link", "set", netdev, "mtu", "1500")
        scenario.go()
        scenario.until(DONE)
        faults = scenario.faults()
        networks = docker.subnets(lab.block)
        assert any(f"rail alone: {second.address} has no address in {networks['fabric1']}" in one for one in faults)
        low = f"both ends: {networks['fabric0']}: MTU 1500 on {third.address} {netdev}, 9000 elsewhere"
        assert any(low in one for one in faults), faults
        (stale,) = [one for one in faults if one.startswith("boxes differ: overlay files:")]
        first, others = stale.split("; ")
        assert first.endswith(f" on {scenario.name(1)}")
        assert f" on {scenario.name(2)}, {scenario.name(3)}" in others
        assert len(faults) == 3, faults


@pytest.mark.full
def test_the_box_whose_traffic_is_shaped_is_named(lab: Lab) -> None:
    with started(lab, FABRIC_CHECK_GBPS_PER_DEVICE="0.4") as scenario:
        scenario.shape(scenario.box(3), "fabric0", "40mbit")
        scenario.go()
        scenario.until(DONE)
        faults = scenario.faults()
        assert any(f"fabric bandwidth: {scenario.name(3)} is slow" in one for one in faults), faults


@pytest.mark.full
def test_another_value_of_a_group_knob_is_named_with_both_boxes(lab: Lab) -> None:
    with started(lab, 2, MAX_NUM_SEQS="3", box2__MAX_NUM_SEQS="9") as scenario:
        scenario.go()
        scenario.until("refused:")
        for box in scenario.lab.boxes:
            line = next(line for line in scenario.log(box).splitlines() if "refused:" in line)
            assert all(words in line for words in ("MAX_NUM_SEQS", "box1", "box2", "3", "9")), line


@pytest.mark.full
def test_a_box_paused_before_it_arrives_is_named(lab: Lab) -> None:
    with started(lab, hold="box3", FABRIC_CHECK_TIMEOUT_S="15") as scenario:
        third = scenario.box(3)
        scenario.go()
        scenario.until("stage=agree accepted", (third,))
        docker.pause(scenario.lab, third)
        scenario.until("stage=fabric boxes in the fabric check", scenario.lab.boxes[:2])
        assert any(f"fabric check: {scenario.name(3)} did not arrive" in one for one in scenario.faults())


@pytest.mark.full
def test_a_box_paused_in_the_all_reduce_is_named(lab: Lab) -> None:
    """Shaped, so that the all-reduce takes seconds: 1.7 s for 16 MiB between three boxes, three times over."""
    with started(lab, FABRIC_CHECK_BYTES="16MiB", FABRIC_CHECK_TIMEOUT_S="30") as scenario:
        third = scenario.box(3)
        scenario.shape(third, "fabric0", "100mbit")
        scenario.go()
        scenario.until("stage=fabric joining", (third,))
        docker.pause(scenario.lab, third)
        scenario.until("stage=fabric boxes in the fabric check", scenario.lab.boxes[:2])
        assert any(f"fabric check: {scenario.name(3)}: silent for 5 s" in one for one in scenario.faults())
