"""One box's boot: the data that all stages share. entrypoint/run.py runs them; the page is derived from here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.log import log
from core.plan import GroupPlan, Topology
from core.refusal import Refusal
from core.row import Row
from core.settings import Settings
from entrypoint.about import about
from entrypoint.board import Board
from entrypoint.discovery.provider import Provider
from entrypoint.discovery.verify import Members
from entrypoint.election import Elected
from entrypoint.status.history import History
from entrypoint.status.machine import Machine
from entrypoint.watch.counters import Activity
from entrypoint.watch.vital import Vital
from group.ask import boottime
from group.driver import Driver
from group.view import About, View
from image import identity
from preflight.facts import Memory

if TYPE_CHECKING:
    from entrypoint.door import Door
    from entrypoint.sizing.budget import Budget
    from entrypoint.sizing.geometry import Pool
    from entrypoint.status.server import Server
    from entrypoint.supervise import Engine
    from entrypoint.topology import Layout
    from preflight.facts import BoxFacts


HEAD_SILENT_S = 15.0  # an older word of the head counts no more; a busy machine answers late


class Leave(Exception):
    """TERM or INT: end in good order."""


class Again(Exception):
    """Back to `join`, nothing to stop: what the plan was made of has changed."""


@dataclass
class Boot:
    """What the stages read and write. Times are seconds on CLOCK_BOOTTIME, 0.0 for never."""

    environ: dict[str, str]
    root: Path = Path("/")  # of the file tree that is looked at; a test's is a recorded one

    # This box, once per start of the kit (stages 1-3).
    settings: Settings | None = None
    group_settings: dict[str, str] = field(default_factory=dict)  # knob -> value, as boxes compare them
    facts: BoxFacts | None = None
    hostname: str = field(default_factory=lambda: socket.gethostname().split(".", 1)[0])
    version: str = field(default_factory=identity.kit_version)
    image: dict[str, str] = field(init=False)
    lan: str = ""  # address of the page, the election and the door; "" while unknown
    ifname: str = ""  # netdev of that address
    tp: int = 0
    topology: Topology = "switch"  # as the knobs ask for; `layout` is what was found
    local_refusals: tuple[Refusal, ...] = ()

    # What runs here as long as the kit does.
    page_server: Server | None = None
    page_task: asyncio.Task[None] | None = None
    door: Door | None = None
    driver: Driver | None = None
    members: Members | None = None
    providers: list[Provider] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    leave: asyncio.Event = field(default_factory=asyncio.Event)  # TERM or INT came
    member_answers: int = 0  # how often /member.json was answered

    # The group and its plan (stages 4-9), anew for every generation.
    elected: Elected | None = None
    formed: tuple[tuple[str, str, int], ...] = ()  # (lan, instance, n) of those who were elected from
    layout: Layout | None = None
    group_refusals: tuple[Refusal, ...] = ()
    memory: Memory = field(default_factory=lambda: Memory(0, 0, 0, 0))  # when this incarnation began
    first_available: int = 0  # bytes, when the kit started
    needed_bytes: int = 0  # of the larger rank
    group_plan: GroupPlan | None = None
    budgets: tuple[Budget, ...] = ()
    pool: Pool | None = None
    netdevs: dict[str, tuple[str, str]] = field(default_factory=dict)  # lan -> (engine address, its netdev)
    cache_paths: dict[str, str] = field(default_factory=dict)
    caches: str = ""  # which tiers are warm, in a few words
    rows: tuple[Row, ...] = ()  # of all checks, warnings first
    verbs_order: tuple[str, ...] = ()  # RDMA devices as libibverbs lists them
    fabric_worker: asyncio.subprocess.Process | None = None  # of the fabric check, started early

    # The engine (stages 10-12).
    engine: Engine | None = None
    engine_port: int = 0  # of its API on 127.0.0.1
    engine_ready: bool = False  # tried, so that the door may lead there
    engine_exit: int | None = None
    last_tail: tuple[str, ...] = ()  # lines of the engine that ran last
    selftest: str = "pending"
    selftest_lines: list[str] = field(default_factory=list)
    proved: bool = False
    served_at: float = 0.0

    # Signs of life, and of trouble.
    activity: Activity = field(default_factory=Activity)
    pulse: int = 0  # grows while the engine's boot moves
    compiling: str = ""
    vital: Vital = field(default_factory=Vital)
    troubles: dict[str, str] = field(default_factory=dict)  # kind -> sentence; a box may serve with some
    alarm: str = ""  # "<record id> <reason>" while this head is about to end a generation
    collected: str = ""  # id of the record whose evidence is collected here
    ended: tuple[str, float] = ("", 0.0)  # why the last generation ended, and when

    # What the page draws from.
    board: Board = field(init=False)
    history: History = field(default_factory=History)
    machine: Machine = field(init=False)

    def __post_init__(self) -> None:
        self.image = identity.report(self.environ)
        self.machine = Machine(self.root)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """This box's own faults, then the group's."""
        return self.local_refusals + self.group_refusals

    @property
    def status_port(self) -> int:
        """Port of the page."""
        return int(self.text("STATUS_PORT", "8082"))

    @property
    def exits(self) -> bool:
        """True when a refusal ends the process (ON_REFUSAL=exit; the lab sets it)."""
        return self.text("ON_REFUSAL", "stay") == "exit"

    @property
    def is_head(self) -> bool:
        """True when this box holds rank 0 of the current generation."""
        record = self.driver.own.record if self.driver else None
        return record is not None and record.head.lan == self.lan

    def text(self, name: str, default: str) -> str:
        """A knob's text, also before (or without) valid settings."""
        if self.settings is not None:
            return self.settings.text(name) or default
        return self.environ.get(name) or default

    def need(self) -> tuple[Settings, Driver, Members]:
        """What every stage after `facts` has."""
        assert self.settings is not None
        assert self.driver is not None
        assert self.members is not None
        return self.settings, self.driver, self.members

    def head_view(self) -> View | None:
        """The head's last view, on a worker in a generation; None when it is older than HEAD_SILENT_S."""
        record = self.driver.own.record if self.driver else None
        member = self.members.table.get(record.head.lan) if record is not None and self.members is not None else None
        return member.sight.view if member is not None and boottime() - member.seen_at < HEAD_SILENT_S else None

    def about(self) -> About:
        """What this box tells the others beside the protocol."""
        return about(self)

    def member_answer(self, nonce: str, dialled: str, asker: str, news: bool) -> bytes:
        """/member.json for `asker`; with `news` it has changed. Empty while this box does not know its own address."""
        self.member_answers += 1
        if self.members is not None:
            self.members.asked(asker, news)
        return self.driver.answer(nonce, dialled) if self.driver else b"{}"

    def refuse_also(self, *found: Refusal) -> None:
        """Add to this box's own refusals what is not among them."""
        self.refuse(local=(*self.local_refusals, *(one for one in found if one not in self.local_refusals)))

    def refuse(self, *, local: Sequence[Refusal] | None = None, group: Sequence[Refusal] | None = None) -> None:
        """Set one kind of refusals; the driver shows the state to the others, the log shows news once."""
        before = self.refusals
        if local is not None:
            self.local_refusals = tuple(local)
        if group is not None:
            self.group_refusals = tuple(group)
        for one in self.refusals:
            if one not in before:
                log(self.board.current.key, f"refused: {one}")
        if before and not self.refusals:
            log(self.board.current.key, "nothing is refused any more")
        if self.driver is not None and self.driver.refused != bool(self.refusals):
            self.driver.refused = bool(self.refusals)
            self.driver.poke()
