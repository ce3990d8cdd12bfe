"""Facts from a recorded tree, and the two addresses that follow from facts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from core.refusal import Refusal
from core.registry import registry
from core.settings import Settings, resolve
from entrypoint.addresses import engine_addresses, lan_address
from preflight.facts import BoxFacts, Interface, Memory, gather

MEMINFO = "MemTotal: 127506432 kB\nMemFree: 2000 kB\nMemAvailable: 90000000 kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n"
ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
wlan0 00000000 0100A8C0 0003 0 0 600 00000000 0 0 0
eth0 00000000 0100000A 0003 0 0 100 00000000 0 0 0
eth0 0000000A 00000000 0001 0 0 100 00FFFFFF 0 0 0
"""


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def gb10(tmp_path: Path) -> Path:
    """A GB10 box as its /proc and /sys show it: wired LAN, Wi-Fi, two ConnectX functions, one without a carrier."""
    write(tmp_path, "proc/sys/kernel/hostname", "spark-a\n")
    write(tmp_path, "proc/sys/kernel/osrelease", "6.17.0-1032-nvidia\n")
    write(tmp_path, "proc/sys/kernel/random/boot_id", "cdbae17e-cb17-431d-90cd-c7fac13f2c3e\n")
    write(tmp_path, "proc/meminfo", MEMINFO)
    write(tmp_path, "proc/net/route", ROUTES)
    for name, mtu, carrier, kind in (
        ("eth0", 1500, "1", "1"),
        ("wlan0", 1500, "1", "1"),
        ("enp1s0f0np0", 9000, "1", "1"),
        ("enP2p1s0f0np0", 9000, None, "1"),
        ("lo", 65536, "1", "772"),
    ):
        write(tmp_path, f"sys/class/net/{name}/mtu", f"{mtu}\n")
        write(tmp_path, f"sys/class/net/{name}/type", f"{kind}\n")
        if carrier is not None:
            write(tmp_path, f"sys/class/net/{name}/carrier", f"{carrier}\n")
        if name.startswith(("enp1", "enP2")):
            write(tmp_path, f"sys/class/net/{name}/device/vendor", "0x15b3\n")
    (tmp_path / "sys/class/net/wlan0/wireless").mkdir()
    write(tmp_path, "sys/class/net/bonding_masters", "\n")
    addresses = (
        "lo 127.0.0.1/8\neth0 172.17.0.1/16\neth0 10.0.0.9/24\nwlan0 192.168.0.5/24\nenp1s0f0np0 169.254.7.1/16\n"
    )
    write(tmp_path, "addresses", addresses)
    return tmp_path


def settings(**knobs: str) -> Settings:
    return resolve(registry(), knobs)


def test_a_recorded_box(gb10: Path) -> None:
    facts = gather(gb10, ("/proc", "/nowhere"))
    assert (facts.hostname, facts.kernel) == ("spark-a", "6.17.0-1032-nvidia")
    assert facts.memory == Memory(127506432 * 1024, 90000000 * 1024, 2000 * 1024, 3072 * 1024)
    assert set(facts.disks) == {"/proc"}
    assert facts.gpus is None
    by_name = {interface.name: interface for interface in facts.interfaces}
    assert set(by_name) == {"eth0", "wlan0", "enp1s0f0np0", "enP2p1s0f0np0", "lo"}
    assert by_name["wlan0"].wireless
    assert by_name["lo"].loopback
    assert by_name["enp1s0f0np0"] == Interface("enp1s0f0np0", ("169.254.7.1/16",), 9000, True, connectx=True)
    assert not by_name["enP2p1s0f0np0"].carrier, "a downed netdev's carrier cannot be read"


def test_the_default_route_is_the_one_with_the_lowest_metric_and_its_address_the_gateway_s_neighbour(
    gb10: Path,
) -> None:
    assert gather(gb10).default_route == ("eth0", "10.0.0.9")


def test_facts_go_through_json_and_back(gb10: Path) -> None:
    facts = gather(gb10)
    told = json.loads(json.dumps(facts.as_dict()))
    assert tuple(Interface.from_dict(entry) for entry in told["interfaces"]) == facts.interfaces


@pytest.mark.parametrize("bad", [{}, {"name": "x"}, {"addresses": ["999.1.1.1/8"]}, {"addresses": 5}])
def test_an_interface_of_garbage_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Interface.from_dict({"name": "x", "addresses": [], "mtu": 1, "carrier": True} | bad)


def test_this_very_machine_in_under_a_tenth_of_a_second() -> None:
    gather()  # libraries are loaded once
    began = time.process_time()
    facts = gather()
    assert time.process_time() - began < 0.1
    assert any(interface.loopback and "127.0.0.1/8" in interface.addresses for interface in facts.interfaces)
    assert facts.memory.total >= facts.memory.available > 0
    assert facts.disks["/"][0] > 0
    assert len(facts.boot_id) == 36


# -- the lan address -------------------------------------------------------------------------------------------


def netdev(name: str, *addresses: str, **flags: Any) -> Interface:
    return Interface(name, addresses, 1500, **{"carrier": True, **flags})


LO = netdev("lo", "127.0.0.1/8", loopback=True)


def box(*interfaces: Interface, route: tuple[str, str] | None = None) -> BoxFacts:
    memory = Memory(1, 1, 1, 0)
    return BoxFacts("a", "b", "c", (LO, *interfaces), route, memory, 0, {}, None)


TWO_NETS = box(
    netdev("eth0", "10.0.0.9/24"),
    netdev("eth1", "10.1.0.9/24"),
    netdev("wlan0", "192.168.0.5/24", wireless=True),
    netdev("enp1s0f0np0", "169.254.7.1/16", connectx=True),
)


def test_the_default_route_s_address_is_the_lan_address() -> None:
    facts = box(netdev("eth0", "10.0.0.9/24"), netdev("eth1", "10.1.0.9/24"), route=("eth1", "10.1.0.9"))
    assert lan_address(facts, settings()) == ("10.1.0.9", "eth1")


def test_without_a_default_route_it_is_the_one_that_reaches_a_peer() -> None:
    assert lan_address(TWO_NETS, settings(), ("spark-b", "10.1.0.7:8082")) == ("10.1.0.9", "eth1")


def test_with_one_address_only_there_is_nothing_to_choose() -> None:
    assert lan_address(box(netdev("eth0", "10.0.0.9/24")), settings()) == ("10.0.0.9", "eth0")


def test_a_rail_is_never_the_lan() -> None:
    rail_only = box(netdev("enp1s0f0np0", "169.254.7.1/16", connectx=True))
    refusal = lan_address(rail_only, settings(), ("169.254.7.2",))
    assert isinstance(refusal, Refusal)
    assert "LAN_ADDRESS" in refusal.cure


def test_what_cannot_be_decided_is_refused_with_the_choices() -> None:
    refusal = lan_address(TWO_NETS, settings())
    assert isinstance(refusal, Refusal)
    assert "10.0.0.9 on eth0" in refusal.seen
    assert "169.254" not in refusal.seen


def test_a_set_address_wins() -> None:
    assert lan_address(TWO_NETS, settings(LAN_ADDRESS="10.1.0.9")) == ("10.1.0.9", "eth1")
    assert lan_address(TWO_NETS, settings(VLLM_HOST_IP="10.1.0.9")) == ("10.1.0.9", "eth1")
    both = settings(LAN_ADDRESS="10.0.0.9", VLLM_HOST_IP="10.1.0.9")
    assert lan_address(TWO_NETS, both) == ("10.0.0.9", "eth0")


@pytest.mark.parametrize("text", ["10.0.0.77", "127.0.0.1", "0.0.0.0", "169.254.7.1", "224.0.0.251"])
def test_a_set_address_that_others_cannot_reach_is_refused(text: str) -> None:
    refusal = lan_address(TWO_NETS, settings(LAN_ADDRESS=text))
    assert isinstance(refusal, Refusal)
    assert refusal.setting == "LAN_ADDRESS"
    assert "10.0.0.9" in refusal.cure


def test_a_rail_address_in_vllm_host_ip_says_nothing_of_the_lan() -> None:
    facts = box(netdev("eth0", "10.0.0.9/24"), route=("eth0", "10.0.0.9"))
    assert lan_address(facts, settings(VLLM_HOST_IP="169.254.7.1")) == ("10.0.0.9", "eth0")


def test_the_lab_lives_on_loopback_and_nobody_else_does() -> None:
    lab = settings(ENGINE_PROFILE="lab-cpu", LAN_ADDRESS="127.0.3.11")
    assert lan_address(box(), lab) == ("127.0.3.11", "lo")
    assert isinstance(lan_address(box(), settings(LAN_ADDRESS="127.0.3.11")), Refusal)


# -- the engine addresses --------------------------------------------------------------------------------------


def member(number: int, *rails: tuple[str, str]) -> tuple[Interface, ...]:
    lan = netdev("eth0", f"10.0.0.{number}/24")
    return (LO, lan, *(netdev(name, address, connectx=True) for name, address in rails))


def test_a_rail_that_all_share_carries_the_engine() -> None:
    members = {
        f"10.0.0.{number}": member(
            number, ("enp1s0f0np0", f"198.18.0.{number}/24"), ("enP2p1s0f0np0", f"198.18.1.{number}/24")
        )
        for number in (9, 10, 11)
    }
    chosen = engine_addresses(members)
    assert chosen == {f"10.0.0.{number}": (f"198.18.0.{number}", "enp1s0f0np0") for number in (9, 10, 11)}
    chosen = engine_addresses(members, ("198.18.1.0/24",))
    assert chosen["10.0.0.10"] == ("198.18.1.10", "enP2p1s0f0np0")


def test_one_box_without_a_rail_puts_all_on_the_lan() -> None:
    members = {
        "10.0.0.9": member(9, ("enp1s0f0np0", "198.18.0.9/24")),
        "10.0.0.10": member(10),
    }
    assert engine_addresses(members) == {"10.0.0.9": ("10.0.0.9", "eth0"), "10.0.0.10": ("10.0.0.10", "eth0")}


def test_a_ring_shares_no_subnet_and_stays_on_the_lan() -> None:
    members = {
        "10.0.0.9": member(9, ("enp1s0f0np0", "198.18.0.1/30"), ("enp1s0f1np1", "198.18.2.2/30")),
        "10.0.0.10": member(10, ("enp1s0f0np0", "198.18.1.1/30"), ("enp1s0f1np1", "198.18.0.2/30")),
        "10.0.0.11": member(11, ("enp1s0f0np0", "198.18.2.1/30"), ("enp1s0f1np1", "198.18.1.2/30")),
    }
    assert engine_addresses(members)["10.0.0.9"] == ("10.0.0.9", "eth0")


def test_link_local_rails_of_two_boxes_are_paired_by_name() -> None:
    """NVIDIA's two-box guide: every function has an automatic address of one and the same subnet."""
    members = {
        "10.0.0.9": member(9, ("enP2p1s0f0np0", "169.254.1.1/16"), ("enp1s0f0np0", "169.254.2.1/16")),
        "10.0.0.10": member(10, ("enp1s0f0np0", "169.254.3.1/16")),
    }
    assert engine_addresses(members) == {
        "10.0.0.9": ("169.254.2.1", "enp1s0f0np0"),
        "10.0.0.10": ("169.254.3.1", "enp1s0f0np0"),
    }


def test_a_rail_without_carrier_or_with_one_address_on_two_boxes_carries_nothing() -> None:
    twice = {f"10.0.0.{number}": member(number, ("enp1s0f0np0", "198.18.0.1/24")) for number in (9, 10)}
    assert engine_addresses(twice)["10.0.0.9"] == ("10.0.0.9", "eth0")
    dead = {
        f"10.0.0.{number}": (
            netdev("eth0", f"10.0.0.{number}/24"),
            netdev("enp1s0f0np0", f"198.18.0.{number}/24", connectx=True, carrier=False),
        )
        for number in (9, 10)
    }
    assert engine_addresses(dead)["10.0.0.9"] == ("10.0.0.9", "eth0")


def test_lab_boxes_use_their_own_loopback_address() -> None:
    assert engine_addresses({"127.0.3.11": (LO,), "127.0.3.12": (LO,)}) == {
        "127.0.3.11": ("127.0.3.11", "lo"),
        "127.0.3.12": ("127.0.3.12", "lo"),
    }
