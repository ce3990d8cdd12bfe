"""The knobs that entrypoint/discovery reads: where boxes look for each other, and what they must prove."""

from __future__ import annotations

import ipaddress

from core.knob import Knob


def _address(text: str) -> str | None:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return "an IPv4 address"
    return None


def _ports(hosts: tuple[str, ...]) -> str | None:
    ports = [host.rpartition(":")[2] for host in hosts if ":" in host]
    return None if all(not port or 0 < int(port) < 65536 for port in ports) else "ports from 1 to 65535"


def _networks(text: str) -> str | None:
    for part in text.split(","):
        try:
            ipaddress.IPv4Network(part.strip())
        except ValueError:
            return "IPv4 networks such as 192.168.100.0/24, separated by commas"
    return None


KNOBS: tuple[Knob, ...] = (
    Knob(
        "PEERS",
        "hosts",
        None,
        "Other boxes as host[:port],...; asked in addition to DNS-SD (which some switches and Wi-Fi bridges drop).",
        scope="box",
        check=_ports,
    ),
    Knob(
        "DISCOVERY",
        "choice",
        "both",
        "Where boxes look for each other: dnssd (multicast, 5353/udp), static (PEERS only) or both.",
        scope="box",
        choices=("both", "dnssd", "static"),
    ),
    Knob(
        "JOIN_NOTICE_S",
        "seconds",
        "20",
        "After this long without all boxes, say who was seen, what was heard and what is likely wrong.",
        unit="s",
        scope="box",
    ),
    Knob(
        "GROUP_SECRET",
        "text",
        None,
        "Shared secret: members prove that they know it (HMAC-SHA256) before they count for anything.",
        secret=True,
    ),
    Knob(
        "LAN_ADDRESS",
        "text",
        None,
        "This box's address for page, election and door; unset, the default route's.",
        scope="box",
        check=_address,
    ),
    Knob(
        "VLLM_HOST_IP",
        "text",
        None,
        "vLLM's name for the same: used as this box's lan address when LAN_ADDRESS is unset.",
        scope="box",
        check=_address,
    ),
    Knob(
        "CLUSTER_SUBNET",
        "text",
        None,
        "Network that the engine's own traffic must use; unset, the first rail network all boxes share.",
        check=_networks,
    ),
    Knob(
        "FABRIC_SUBNETS",
        "text",
        None,
        "Networks that are rails, separated by commas; unset, the addresses of ConnectX netdevs.",
        check=_networks,
    ),
)
