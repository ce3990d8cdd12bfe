"""Boxes as processes, each in a network namespace of its own on one bridge: networks that can be cut or lose packets.

Root only. The caller's own network and mount namespace holds the bridge and the names (`own_network` makes one), so
nothing of it meets the machine's networks, and all of it is gone with the caller. The rest is lab/providers/process.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping, Sequence

from core.refusal import Refusal
from hosts.local import Local
from lab import processes
from lab.providers import process
from lab.state import Box, Lab
from launcher.paths import ROOT

INSIDE = "GLM53_LAB_NETWORK"
BRIDGE = "glm53-lab"
FIRST_BLOCK, BLOCKS = 120, 130

kept, stop, kill_all, everything, find = process.kept, process.stop, process.kill_all, process.everything, process.find
pause, resume, host, kit_log, mark = process.pause, process.resume, process.host, process.kit_log, process.mark
check = process.check


def own_network(argv: Sequence[str]) -> None:
    """Become `argv` in a network of our own, unless this process is in one already. Raises Refusal without root."""
    if INSIDE in os.environ:
        return
    if os.geteuid() != 0:
        raise Refusal("lab", "not root", "root: network namespaces on a bridge", "Use the provider `process`.")
    script = (
        "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && "
        f'ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up && exec "$@"'
    )
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "sh", "-c", script, "sh", *argv])


def blocks_here(name: str) -> Sequence[int]:
    """Blocks for the lab `name` of this clone: a lab in another network knows its boxes by their addresses too and
    ends what carries them, so two labs begin at places of their own, and a block whose first box is known to anybody
    is passed over.
    """
    first = zlib.crc32(f"{ROOT} {name}".encode())
    numbers = [FIRST_BLOCK + (first + step) % BLOCKS for step in range(BLOCKS)]
    return [number for number in numbers if not processes.carrying(f"GLM53_BOX={address(number, 1)}")]


def address(block: int, number: int) -> str:
    """Address of a box on the bridge; the bridge itself is .1."""
    return f"10.77.{block}.{10 + number}"


def namespaces_permitted() -> bool:
    """As for plain processes: root may."""
    return process.namespaces_permitted()


def prepare(lab: Lab) -> None:
    """The bridge gets its address, each box its network namespace with `eth0`. Raises Refusal."""
    _ip("addr", "replace", f"10.77.{lab.block}.1/24", "dev", BRIDGE)
    for box in lab.boxes:
        space, outside = _space(box), _outside(box)
        _forget(box)
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", BRIDGE, "up")
        _ip("-n", space, "addr", "add", f"{box.address}/24", "dev", "eth0")
        for netdev in ("lo", "eth0"):
            _ip("-n", space, "link", "set", netdev, "up")


def start(lab: Lab, box: Box, argv: list[str], environment: Mapping[str, str], claim: int | None) -> None:
    """Start the box's keeper in the box's network."""
    process.start(lab, box, argv, environment, claim, ("ip", "netns", "exec", _space(box)))


def cut(box: Box) -> None:
    """Take the box off the bridge: its cable is out, what it sends goes nowhere."""
    _ip("link", "set", _outside(box), "nomaster")


def mend(box: Box) -> None:
    """Back on the bridge; nothing is lost or dropped any more."""
    _ip("link", "set", _outside(box), "master", BRIDGE)
    _in(box, "iptables", "-F")


def lose(box: Box, rule: str) -> None:
    """Drop what `rule` (words for iptables) matches of what arrives at the box."""
    _in(box, "iptables", "-A", "INPUT", *rule.split(), "-j", "DROP")


def leftovers(lab: Lab) -> list[str]:
    """Processes; then the namespaces go, and with them every socket."""
    found = [f"process {p.pid} {p.title[:60]}" for box in lab.boxes for p in everything(lab, box)]
    for box in lab.boxes:
        _forget(box)
    return found


def _forget(box: Box) -> None:
    """The box's cable, both ends, and its namespace; neither need be there."""
    Local().run(("ip", "link", "del", _outside(box)), deadline_s=10)
    Local().run(("ip", "netns", "del", _space(box)), deadline_s=10)


def _space(box: Box) -> str:
    return f"box{box.number}"


def _outside(box: Box) -> str:
    return f"veth{box.number}"


def _in(box: Box, *argv: str) -> None:
    _ip("netns", "exec", _space(box), *argv)


def _ip(*argv: str) -> None:
    done = Local().run(("ip", *argv), deadline_s=10)
    if done.status != 0:
        seen = f"ip {' '.join(argv)}: {done.err.strip()}"
        raise Refusal("lab", seen, "root in a network of its own", f"Run it with {sys.executable} as root.")
