"""What a member shows the others (/member.json), and the generation record the head writes.

Plain data with a strict reader: whatever arrives from the network is either a View or a ValueError.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

from preflight.facts.types import Interface

PROTOCOL = 1
# One a second for eight million years. A higher one is damage: nothing could go above it for ever.
HIGHEST_EPOCH = 2**48
LARGEST = 256 * 1024  # bytes of one /member.json answer; a real one is about 6 KiB

State = Literal["joining", "ready", "accepted", "launching", "running", "stopping", "refused", "leaving"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Seat:
    """One member's place in a generation: rank, both addresses, and the incarnation it is meant for."""

    rank: int
    lan: str
    engine_address: str
    instance: str
    n: int


@dataclass(frozen=True)
class Record:
    """A generation: written by the head, named by a random id. `seats` are in rank order, the head first.

    master_port  of vLLM's rendezvous on the head; check_port: of the fabric check
    """

    id: str
    epoch: int
    seats: tuple[Seat, ...]
    plan_hash: str
    master_port: int
    check_port: int

    @property
    def head(self) -> Seat:
        """The seat of rank 0."""
        return self.seats[0]

    def seat(self, lan: str) -> Seat | None:
        """The seat of a lan address, or None when this generation is without it."""
        return next((seat for seat in self.seats if seat.lan == lan), None)


@dataclass(frozen=True)
class About:
    """What a member tells of itself beside the protocol: election, sizing and the page read it.

    settings   name -> text of every group-scope knob that is not secret; compared between boxes
    interfaces this box's netdevs: the engine's addresses are chosen from all boxes' ones
    total, available   memory in bytes when this incarnation began
    peers      "lan:port" of the members this one has verified: hints for the others
    plan       name -> text of its group plan's values; looked at when two hashes differ
    refusals   one line each; a box that refuses says why to all; unfit: the fault is its own, not the group's
    selftest   the head's verdict; failed: its first bad line, or what the head could not do
    alarm      "<record id> <reason>" while the head is about to end a generation that nobody reported broken
    collected  id of the record whose evidence is collected here
    caches     which tiers of this box's caches are warm, in a few words (entrypoint/caches.py)
    compiling  names of compilers at work beneath this box's engine; pulse: grows while its boot moves
    ended      why its last generation ended, "" once it serves again; ended_ms: milliseconds since
    answered_ms, stepped_ms   on the head: since its engine gave a token, since a step came back; -1: never
    requests   in the head's engine; troubles: what is wrong on this box though it may serve
    """

    hostname: str = ""
    boot_id: str = ""
    tp: int = 0
    topology: str = ""
    head_host: str = ""
    role: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    interfaces: tuple[Interface, ...] = ()
    total: int = 0
    available: int = 0
    peers: tuple[str, ...] = ()
    plan: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    unfit: bool = False
    stage: str = ""
    step: str = ""
    selftest: str = "pending"
    failed: str = ""
    healthy: bool = False
    alarm: str = ""
    collected: str = ""
    compiling: str = ""
    pulse: int = 0
    caches: str = ""
    ended: str = ""
    ended_ms: int = 0
    answered_ms: int = -1
    stepped_ms: int = -1
    requests: int = 0
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """A member at one moment. A view of the same instance with a lower sequence is older.

    head       lan address of the member it elects, "" while it elects none
    plan_hash  of its own group plan, "" while it has none
    record     what it accepted (the head: what it proposes)
    checked    its fabric check of that record is done
    committed  the head says so: all have accepted
    """

    lan: str
    port: int
    instance: str
    n: int
    sequence: int
    state: State
    epoch: int
    head: str = ""
    plan_hash: str = ""
    record: Record | None = None
    checked: bool = False
    committed: bool = False
    reason: str = ""
    about: About = field(default_factory=About)

    def as_json(self) -> str:
        """Compact JSON text; `parse` gives back an equal view."""
        # Not asdict(), which copies every value: 0.50 of 2.8 s in a profile of an idle kit (lab, 2 cores, 2026-11-30).
        return json.dumps(self, separators=(",", ":"), sort_keys=True, default=vars)


class _Fields:
    """Typed reading of one JSON object; every mismatch is a ValueError that names the field."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"{where}: not an object")
        self.data: dict[str, Any] = data
        self.where = where

    def _take(self, name: str, kind: type) -> Any:
        value = self.data.get(name)
        if type(value) is not kind:  # bool is an int to isinstance
            raise ValueError(f"{self.where}.{name}: not {kind.__name__}")
        return value

    def text(self, name: str, longest: int = 500) -> str:
        value: str = self._take(name, str)
        if len(value) > longest:
            raise ValueError(f"{self.where}.{name}: longer than {longest}")
        return value

    def epoch(self, low: int = 0) -> int:
        """An epoch: whoever sees a high one goes above it, so one near the end of all numbers would be the last."""
        return self.number("epoch", low, HIGHEST_EPOCH)

    def number(self, name: str, low: int = 0, high: int = 2**63) -> int:
        value: int = self._take(name, int)
        if not low <= value <= high:
            raise ValueError(f"{self.where}.{name}: {value} is not within {low}..{high}")
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._take(name, bool)
        return value

    def items(self, name: str, most: int = 512) -> list[Any]:
        value: list[Any] = self._take(name, list)
        if len(value) > most:
            raise ValueError(f"{self.where}.{name}: more than {most} items")
        return value

    def texts(self, name: str, most: int = 64) -> tuple[str, ...]:
        values = self.items(name, most)
        if not all(isinstance(value, str) and len(value) <= 2000 for value in values):
            raise ValueError(f"{self.where}.{name}: not a list of texts")
        return tuple(values)

    def table(self, name: str) -> dict[str, str]:
        value: dict[str, str] = self._take(name, dict)
        if len(value) > 500 or not all(isinstance(text, str) and len(text) <= 8192 for text in value.values()):
            raise ValueError(f"{self.where}.{name}: not at most 500 names with texts")
        return value

    def address(self, name: str) -> str:
        try:
            return _dotted(self.text(name, 15))
        except ValueError:
            raise ValueError(f"{self.where}.{name}: not an IPv4 address") from None


@lru_cache(64)  # the same few addresses come every second, from every box
def _dotted(text: str) -> str:
    return str(ipaddress.IPv4Address(text))


def parse_view(text: str | bytes) -> View:
    """A View from JSON text. ValueError says what is wrong with anything else."""
    if len(text) > LARGEST:
        raise ValueError(f"larger than {LARGEST} bytes")
    try:
        data = json.loads(text)
        if isinstance(text, bytes) or "\\u" in text or not text.isascii():  # else there is nothing that could be half
            json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("text with half a character, which no page or log could show") from None
    return _view(_Fields(data, "view"))


def _view(fields: _Fields) -> View:
    state = fields.text("state", 20)
    if state not in STATES:
        raise ValueError(f"view.state: {state!r} is not one of {', '.join(STATES)}")
    record = fields.data.get("record")
    return View(
        lan=fields.address("lan"),
        port=fields.number("port", 1, 65535),
        instance=_hex(fields.text("instance", 32), "view.instance"),
        n=fields.number("n"),
        sequence=fields.number("sequence"),
        state=state,
        epoch=fields.epoch(),
        head=fields.address("head") if fields.text("head", 15) else "",
        plan_hash=fields.text("plan_hash", 64),
        record=None if record is None else _record(_Fields(record, "record")),
        checked=fields.flag("checked"),
        committed=fields.flag("committed"),
        reason=fields.text("reason", 2000),
        about=_about(_Fields(fields.data.get("about"), "about")),
    )


def _record(fields: _Fields) -> Record:
    seats = tuple(_seat(_Fields(item, f"seat {rank}"), rank) for rank, item in enumerate(fields.items("seats", 64)))
    if not seats or len({seat.lan for seat in seats}) != len(seats):
        raise ValueError("record.seats: empty, or one address twice")
    return Record(
        id=_hex(fields.text("id", 32), "record.id"),
        epoch=fields.epoch(1),
        seats=seats,
        plan_hash=fields.text("plan_hash", 64),
        master_port=fields.number("master_port", 1, 65535),
        check_port=fields.number("check_port", 1, 65535),
    )


def _seat(fields: _Fields, rank: int) -> Seat:
    if fields.number("rank") != rank:
        raise ValueError(f"seat {rank}: ranks are not in order")
    return Seat(
        rank=rank,
        lan=fields.address("lan"),
        engine_address=fields.address("engine_address"),
        instance=_hex(fields.text("instance", 32), "seat.instance"),
        n=fields.number("n"),
    )


def _about(fields: _Fields) -> About:
    try:
        interfaces = tuple(Interface.from_dict(item) for item in fields.items("interfaces", 256))
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"about.interfaces: {error!r}") from None
    return About(
        hostname=fields.text("hostname"),
        boot_id=fields.text("boot_id"),
        tp=fields.number("tp", 0, 64),
        topology=fields.text("topology"),
        head_host=fields.text("head_host"),
        role=fields.text("role"),
        settings=fields.table("settings"),
        interfaces=interfaces,
        total=fields.number("total"),
        available=fields.number("available"),
        peers=fields.texts("peers"),
        plan=fields.table("plan"),
        refusals=fields.texts("refusals"),
        unfit=fields.flag("unfit"),
        stage=fields.text("stage"),
        step=fields.text("step", 2000),
        selftest=fields.text("selftest"),
        failed=fields.text("failed", 2000),
        healthy=fields.flag("healthy"),
        alarm=fields.text("alarm", 2000),
        collected=fields.text("collected", 64),
        compiling=fields.text("compiling"),
        pulse=fields.number("pulse"),
        caches=fields.text("caches"),
        ended=fields.text("ended", 2000),
        ended_ms=fields.number("ended_ms"),
        answered_ms=fields.number("answered_ms", -1),
        stepped_ms=fields.number("stepped_ms", -1),
        requests=fields.number("requests"),
        troubles=fields.texts("troubles"),
    )


def _hex(text: str, where: str) -> str:
    if not text or any(digit not in "0123456789abcdef" for digit in text):
        raise ValueError(f"{where}: not lower-case hex")
    return text


def by_address(lan: str) -> int:
    """Sort key: addresses in numeric order, so that 10.0.0.9 comes before 10.0.0.10."""
    return int(ipaddress.IPv4Address(lan))
