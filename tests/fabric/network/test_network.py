"""Real kits and real gloo all-reduces over a LAN and two fabric networks: what is broken is named, with its box."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import vllm
from launcher.environments import python_of
from launcher.paths import ROOT

NETS = Path(__file__).with_name("nets.py")
NAMESPACES = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
ROW = re.compile(r"stage=(fabric|preflight) ([^=]+) level=(WARN|FAIL) seen=(.*)")


@dataclass(frozen=True)
class Seen:
    logs: dict[str, str]
    received: dict[str, dict[str, int]]

    def faults(self, box: str = "alpha") -> list[str]:
        """What the log of a box calls wrong, but for what a lab has not: memory, disks."""
        found = [f"{row[2]}: {row[4]}" for row in ROW.finditer(self.logs[box])]
        return [
            line for line in found if not line.startswith(("host memory", "swap", "disk", "page cache", "NCCL set"))
        ]

    def said(self, words: str, box: str = "alpha") -> bool:
        return any(words in line.replace('"', "") for line in self.faults(box))


def run(folder: Path, count: int = 3, until: str = "stage=fabric done", seconds: int = 150, **changes: Any) -> Seen:
    """Boxes alpha, beta, ... until every box's log says `until`."""
    engine = python_of(vllm.environment())
    (folder / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] && exec sleep 600\nexec "{engine}" "$@"\n')
    (folder / "python").chmod(0o755)
    spec = {
        "root": str(ROOT), "boxes": ["alpha", "beta", "gamma", "delta"][:count], "until": until, "seconds": seconds,
        "down": {}, "mtu": {}, "shaped": {}, "overlay": {}, "settings": {}, "own": {}, "pause": "", "pause_at": "",
        **changes,
    }  # fmt: skip
    (folder / "spec.json").write_text(json.dumps(spec))
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *mapped, *NAMESPACES, sys.executable, str(NETS), str(folder / "spec.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    assert done.returncode == 0, done.stderr
    seen = Seen(**json.loads(done.stdout))
    assert until in seen.logs["alpha"], seen.logs["alpha"]
    return seen


def test_three_faults_of_three_boxes_are_named_in_one_start(tmp_path: Path) -> None:
    """The short one: a netdev down, an MTU of 1500, an old overlay file; the all-reduce crosses the first fabric."""
    seen = run(
        tmp_path,
        4,
        down={"beta": ["fab1"]},
        mtu={"gamma": {"fab0": 1500}},
        overlay={"delta": "pass  # of last week\n"},
    )
    assert seen.said("rail alone: 10.77.0.2 has no address in 198.19.0.0/24")
    assert seen.said("both ends: 198.18.0.0/24: MTU 1500 on 10.77.0.3 fab0, 9000 elsewhere")
    assert seen.said("boxes differ: overlay files:")
    assert seen.said("on delta (10.77.0.4)")
    assert len(seen.faults()) == 3, seen.faults()
    for box, bytes_of in seen.received.items():
        assert bytes_of["fab0"] > 8 << 20, box
        assert bytes_of["lan0"] < 4 << 20, box


@pytest.mark.full
def test_a_healthy_group_is_silent(tmp_path: Path) -> None:
    seen = run(tmp_path)
    assert [seen.faults(box) for box in seen.logs] == [[], [], []]


@pytest.mark.full
def test_one_of_three_boxes_off_the_second_network_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, down={"gamma": ["fab1"]}).faults() == [
        'rail alone: "10.77.0.3 has no address in 198.19.0.0/24; 10.77.0.1, 10.77.0.2 have"'
    ]


@pytest.mark.full
def test_a_box_off_the_first_network_is_named_and_the_second_one_is_used(tmp_path: Path) -> None:
    seen = run(tmp_path, down={"beta": ["fab0"]})
    assert seen.said("rail alone: 10.77.0.2 has no address in 198.18.0.0/24")
    assert all(bytes_of["fab1"] > 8 << 20 for bytes_of in seen.received.values())


@pytest.mark.full
def test_the_box_whose_traffic_is_shaped_is_named(tmp_path: Path) -> None:
    expected = {"FABRIC_CHECK_GBPS_PER_DEVICE": "0.4"}
    seen = run(tmp_path, shaped={"gamma": "40mbit"}, settings=expected)
    assert seen.said("fabric bandwidth: gamma (10.77.0.3) is slow"), seen.faults()


@pytest.mark.full
def test_another_value_of_a_group_knob_is_named_with_both_boxes(tmp_path: Path) -> None:
    seen = run(tmp_path, 2, until="refused:", own={"beta": {"MAX_NUM_SEQS": "9"}})
    line = next(line for line in seen.logs["alpha"].splitlines() if "refused:" in line)
    assert "MAX_NUM_SEQS" in line
    assert "beta" in line


@pytest.mark.full
@pytest.mark.parametrize(
    ("moment", "said"), [("stage=agree accepted", "did not arrive"), ("stage=fabric joining", "silent for 5 s")]
)
def test_a_paused_box_is_named(tmp_path: Path, moment: str, said: str) -> None:
    seen = run(
        tmp_path,
        until="stage=fabric boxes in the fabric check",
        pause="gamma",
        pause_at=moment,
        settings={"FABRIC_CHECK_TIMEOUT_S": "15", "FABRIC_CHECK_BYTES": "128MiB"},
    )
    assert any("gamma (10.77.0.3)" in line and said in line for line in seen.faults()), seen.faults()
