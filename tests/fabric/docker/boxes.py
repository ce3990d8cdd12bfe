"""Boxes as containers of the kit's image, on a LAN and two fabric networks, with faults made from outside."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from lab.environment import environment
from lab.providers import docker
from lab.state import Box, Lab
from launcher.paths import ROOT

HERE = Path(__file__).parent
KIT = ["/opt/glm53/venv/bin/python", "-m", "entrypoint"]
ROW = re.compile(r"stage=(fabric|preflight) ([^=]+) level=(WARN|FAIL) seen=(.*)")
# What a container on a shared machine has not: memory and disks of its own.
NO_FAULT = ("host memory", "swap", "disk", "page cache", "NCCL set")


@dataclass(frozen=True)
class Scenario:
    """Boxes of a lab from their containers' start to the end of the fabric check.

    overlay  box name -> text of its overlay file, where it is another than everybody's
    hold     a box whose check's worker does not come to import torch
    """

    lab: Lab
    overlay: Mapping[str, str] = field(default_factory=dict)
    hold: str = ""

    def folder(self, box: Box) -> Path:
        """What the box sees as /test."""
        return box.path / "test"

    def start(self) -> None:
        """All containers up, their netdevs there; the kits wait for `go`."""
        for box in self.lab.boxes:
            folder = self.folder(box)
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "overlay").mkdir(parents=True)
            (folder / "overlay" / "hook.py").write_text(self.overlay.get(box.name, "pass\n"))
            for script in ("rails.sh", "python.sh"):
                shutil.copy(HERE / script, folder / script)
            if box.name == self.hold:
                (folder / "hold").touch()
            (box.path / docker.OVERRIDE).write_text(json.dumps(override(self.lab, folder)))
            settings = environment(self.lab, box, ROOT, Path("/test/python.sh"), Path("/models/target"))
            docker.start(self.lab, box, [], settings, None)

    def go(self) -> None:
        """Let the kits start, all at once."""
        for box in self.lab.boxes:
            (self.folder(box) / "go").touch()

    def box(self, number: int) -> Box:
        """Box 1, 2, ..."""
        return self.lab.boxes[number - 1]

    def disconnect(self, box: Box, network: str) -> None:
        """Pull the box off a network."""
        name, container = docker.network_name(self.lab, network), docker.container(self.lab, box)
        subprocess.run(["docker", "network", "disconnect", name, container], check=True)

    def inside(self, box: Box, *words: str) -> str:
        """A command of this machine in the box's network."""
        enter = ["nsenter", "-t", str(docker.kept(box).pid), "-n"]
        return subprocess.run([*enter, *words], check=True, capture_output=True, text=True).stdout

    def shape(self, box: Box, network: str, rate: str) -> None:
        """Let the box send no faster than `rate` (tc's words) on a network."""
        shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        self.inside(box, "tc", "qdisc", "add", "dev", self.netdev(box, network), *shape)

    def netdev(self, box: Box, network: str) -> str:
        """The box's netdev on a network: Docker numbers them as it likes."""
        return netdevs(json.loads(self.inside(box, "ip", "-j", "address")), docker.subnets(self.lab.block))[network]

    def received(self, box: Box, network: str) -> int:
        """Bytes that came in on that netdev."""
        (link,) = json.loads(self.inside(box, "ip", "-j", "-s", "link", "show", "dev", self.netdev(box, network)))
        count: int = link["stats64"]["rx"]["bytes"]
        return count

    def log(self, box: Box) -> str:
        """What the kit has said."""
        done = subprocess.run(
            ["docker", "logs", docker.container(self.lab, box)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return done.stdout

    def until(self, words: str, boxes: tuple[Box, ...] = (), deadline_s: float = 120) -> None:
        """Wait until the logs of these boxes (of all) hold the words."""
        waiting = list(boxes or self.lab.boxes)
        until = time.monotonic() + deadline_s
        while waiting:
            waiting = [box for box in waiting if words not in self.log(box)]
            assert time.monotonic() < until, f"no {words!r} of {waiting[0].name}:\n{self.log(waiting[0])[-6000:]}"
            time.sleep(0.2)

    def faults(self, number: int = 1) -> list[str]:
        """What the log of a box calls wrong."""
        found = [f"{row[2]}: {row[4]}".replace('"', "") for row in ROW.finditer(self.log(self.box(number)))]
        return [line for line in found if not line.startswith(NO_FAULT)]

    def name(self, number: int) -> str:
        """How rows name the box."""
        box = self.box(number)
        return f"{docker.container(self.lab, box)} ({box.address})"


def override(lab: Lab, folder: Path) -> dict[str, Any]:
    """What these tests lay over the compose files: rails for the kit to see, and the scripts above."""
    prefix = docker.subnets(lab.block)["fabric0"].rpartition(".")[0] + "."
    service = {
        "entrypoint": ["/test/rails.sh", *KIT],
        "environment": {"FABRIC_PREFIX": prefix},
        "tmpfs": ["/sys/class/net:mode=755"],
        "volumes": [f"{folder}:/test", f"{folder}/overlay:/opt/glm53-overlays:ro"],
    }
    return {"services": {"glm53": service}}


def netdevs(links: list[dict[str, Any]], subnets: Mapping[str, str]) -> dict[str, str]:
    """Network -> netdev, from what `ip -j address` shows. Pure."""
    return {
        network: link["ifname"]
        for link in links
        for held in link["addr_info"]
        for network, subnet in subnets.items()
        if held["family"] == "inet" and IPv4Address(held["local"]) in IPv4Network(subnet)
    }


@contextmanager
def started(
    lab: Lab, count: int = 3, overlay: Mapping[str, str] | None = None, hold: str = "", **settings: str
) -> Iterator[Scenario]:
    """`count` boxes of the lab, waiting for `go`. A setting box2__MAX_NUM_SEQS is box2's own."""
    own = {name.replace("__", "."): text for name, text in settings.items()}
    lab = replace(lab, boxes=lab.boxes[:count], set={**lab.set, **own})
    scenario = Scenario(lab, overlay or {}, hold)
    try:
        scenario.start()
        yield scenario
    finally:
        for box in lab.boxes:
            docker.remove(lab, box)
