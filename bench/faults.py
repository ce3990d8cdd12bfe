"""The faults of bench/chaos: what each does to the boxes it hits, and which of them each provider of a lab has."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from core.refusal import Refusal
from lab import cluster, processes
from lab.providers import netns, process
from lab.state import Box, Lab

LOST_S = 6  # as bench/chaos sets it
CUT_S, LOSSY_S, SILENT_S = 25.0, 12.0, 25.0
Act = Callable[[Lab, list[Box]], None]


def _kill(what: process.What) -> Act:
    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            processes.send(process.find(lab, box, what), signal.SIGKILL)

    return act


def _power(lab: Lab, hit: list[Box]) -> None:
    for box in hit:
        process.kill_all(lab, box)
    time.sleep(1)
    for box in hit:
        cluster.start(lab, box)


def _pause(seconds: float) -> Act:
    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            process.pause(lab, box)
        time.sleep(seconds)
        for box in hit:
            process.resume(lab, box)

    return act


def _restart(lab: Lab, hit: list[Box]) -> None:
    cluster.stop(lab, hit)
    for box in hit:
        cluster.start(lab, box)


def _still(lab: Lab, hit: list[Box]) -> None:
    """A rank stands still, its kit does not: vLLM's /health stays 200."""
    for box in hit:
        processes.send(process.find(lab, box, "engine"), signal.SIGSTOP)


def _jump(wall: float, boot: float, watched_s: float) -> Act:
    """Clocks of the box go on from elsewhere, and stay there; then it is watched for so long."""

    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            file = box.path / "clock"
            before = [float(word) for word in file.read_text().split()] if file.exists() else [0.0, 0.0]
            new = file.with_suffix(".new")
            new.write_text(f"{before[0] + wall} {before[1] + boot}")
            new.replace(file)
        time.sleep(watched_s)

    return act


def _full_cache(lab: Lab, hit: list[Box]) -> None:
    """CACHE_ROOT becomes a tmpfs without a free byte, then the engine dies and has to start on it."""
    for box in hit:
        folder = json.loads((box.path / "spec.json").read_text())["environment"]["CACHE_ROOT"]
        script = (
            f'mount -t tmpfs -o size=64k tmpfs "{folder}" && cat /dev/zero > "{folder}/full"; test -s "{folder}/full"'
        )
        done = process.host(lab, box).run(("sh", "-c", script), deadline_s=10)
        if done.status != 0:
            raise Refusal("chaos", done.err.strip(), "a full tmpfs as cache", "Run it as root.")
    _kill("engine")(lab, hit)


def _roomy_cache(lab: Lab, hit: list[Box]) -> None:
    for box in hit:
        folder = json.loads((box.path / "spec.json").read_text())["environment"]["CACHE_ROOT"]
        process.host(lab, box).run(("umount", "--lazy", folder), deadline_s=10)  # gone with a box that started again


def _network(seconds: float, rules: tuple[str, ...] = ()) -> Act:
    """The cable is out, or packets that match one of `rules` are lost, for so long."""

    def act(lab: Lab, hit: list[Box]) -> None:
        for box in hit:
            for rule in rules:
                netns.lose(box, rule)
            if not rules:
                netns.cut(box)
        time.sleep(seconds)
        for box in hit:
            netns.mend(box)

    return act


Ends = Literal["must", "may", "must not"]


@dataclass(frozen=True)
class Fault:
    """everyone: hits all boxes, in an order of its own; ends: what it does to the generation that runs; undo: after
    the group serves again.
    """

    act: Act
    everyone: bool = False
    ends: Ends = "must"
    undo: Act | None = None


FAULTS: dict[str, Fault] = {
    "kill -9 of a kit": Fault(_kill("kit")),
    "kill -9 of an engine": Fault(_kill("engine")),
    "power cut of a box": Fault(_power),
    "box stopped and started": Fault(_restart),
    "pause below LOST_S": Fault(_pause(LOST_S / 3), ends="may"),
    "pause above LOST_S": Fault(_pause(LOST_S + 3)),
    "rank stands still": Fault(_still),
    "kill -9 of all kits": Fault(_kill("kit"), everyone=True),
    "power cut of all boxes": Fault(_power, everyone=True),
    "all boxes stopped and started": Fault(_restart, everyone=True),
    "cache on a full tmpfs": Fault(_full_cache, undo=_roomy_cache),
    "wall clock a day ahead": Fault(_jump(86400, 0, 5), ends="must not"),
    "wall clock a day back": Fault(_jump(-86400, 0, 5), ends="must not"),
    "boot clock beyond LOST_S": Fault(_jump(0, LOST_S + 3, 0)),
}
NETWORK_FAULTS: dict[str, Fault] = {
    "cable out for 4 s": Fault(_network(4), ends="may"),
    f"cable out for {CUT_S:g} s": Fault(_network(CUT_S), ends="may"),
    "cable out for all boxes": Fault(_network(CUT_S), everyone=True, ends="may"),
    "a fifth of all packets lost": Fault(
        _network(LOSSY_S, ("-m statistic --mode random --probability 0.2",)), ends="may"
    ),
    "LAN silent, rails carry on": Fault(
        _network(SILENT_S, ("-p tcp --dport 8082", "-p tcp --sport 8082")), ends="must not"
    ),
}
PROVIDERS: dict[str, dict[str, Fault]] = {"process": FAULTS, "netns": FAULTS | NETWORK_FAULTS}
