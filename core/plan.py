"""The plan: what will be launched, as plain data that can be printed without doing anything.

Group plan: equal on all boxes, hashed and compared. Box plan: this box's own part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.settings import Source

Topology = Literal["switch", "ring", "triangle"]
Profile = Literal["gb10", "lab-cpu"]


@dataclass(frozen=True)
class Value:
    """One planned value: a knob's name maps to it. `why` says how a derived value came about."""

    value: Any
    source: Source
    why: str = ""


@dataclass(frozen=True)
class GroupPlan:
    """What must be equal on all boxes.

    tp        tensor-parallel size = world size = number of boxes
    values    knob name -> Value: everything that shapes the engine's argv, environment or memory
    """

    tp: int
    topology: Topology
    profile: Profile
    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def get(self, name: str, default: Any = None) -> Any:
        """The planned value, or `default` where the plan holds none."""
        return self.values[name].value if name in self.values else default

    def comparable(self) -> dict[str, Any]:
        """What is hashed: values only; where a value came from may differ between boxes."""
        return {
            "tp": self.tp,
            "topology": self.topology,
            "profile": self.profile,
            "values": {name: value.value for name, value in sorted(self.values.items())},
        }

    def hash(self) -> str:
        """16 hex digits of sha256 over the canonical JSON of `comparable()`."""
        text = json.dumps(self.comparable(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def differing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Names whose values differ between two flat mappings, with both values (None where absent)."""
    names = sorted(set(mine) | set(theirs))
    return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}


@dataclass(frozen=True)
class BoxPlan:
    """This box's own part of a generation.

    rank            0 is the head
    lan_address     page, election and door
    engine_address  VLLM_HOST_IP; on the rails where all members share a subnet
    socket_ifname   GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME
    master_address  the head's engine address; `master_port` from the generation record
    api_port        loopback port of vLLM's API on the head; the door leads there
    rails           RDMA devices for NCCL_IB_HCA, in order; empty without a fabric
    nccl            NCCL environment of this box (GID index, topology block)
    paths           model, drafter, logs, cache: absolute paths as the engine sees them
    """

    rank: int
    world_size: int
    lan_address: str
    engine_address: str
    socket_ifname: str
    master_address: str
    master_port: int
    api_port: int
    rails: tuple[str, ...] = ()
    nccl: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """What to execute: argv and the whole environment of the child (nothing is inherited beside it)."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
