"""One box's boot: the data all stages share. entrypoint/run.py runs them; the page is derived from here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.log import log
from core.plan import GroupPlan
from core.refusal import Refusal
from core.row import Row
from core.settings import Settings
from entrypoint.board import Board
from entrypoint.discovery.provider import Provider
from entrypoint.discovery.verify import Members
from entrypoint.election import Elected
from entrypoint.status.history import History
from entrypoint.status.machine import Machine
from entrypoint.watch.counters import Rank
from entrypoint.watch.vital import Vital, age_ms
from group.ask import boottime
from group.driver import Driver
from group.view import About, View
from image import identity

if TYPE_CHECKING:
    import uvicorn

    from entrypoint.door import Door
    from entrypoint.sizing.budget import Budget
    from entrypoint.sizing.geometry import Pool
    from entrypoint.supervise import Engine
    from entrypoint.topology import Layout
    from preflight.facts import BoxFacts


HEAD_SILENT_S = 15.0  # a worker's page calls the head silent then; a busy machine answers late


class Leave(Exception):
    """TERM or INT: end in good order."""


class Again(Exception):
    """Back to `join`, nothing to stop: what the plan was made of has changed."""


@dataclass
class Boot:
    """What stages read and write. Everything the page shows is derived from here."""

    environ: dict[str, str]
    root: Path = Path("/")
    settings: Settings | None = None
    facts: BoxFacts | None = None
    hostname: str = field(default_factory=lambda: socket.gethostname().split(".", 1)[0])
    version: str = field(default_factory=identity.kit_version)
    image: dict[str, str] = field(init=False)
    lan: str = ""
    ifname: str = ""
    tp: int = 0
    topology: str = "switch"
    server: uvicorn.Server | None = None
    serving: asyncio.Task[None] | None = None
    members: Members | None = None
    driver: Driver | None = None
    providers: list[Provider] = field(default_factory=list)
    door: Door | None = None
    elected: Elected | None = None
    formed: tuple[tuple[str, str, int], ...] = ()
    group_plan: GroupPlan | None = None
    cache_paths: dict[str, str] = field(default_factory=dict)
    caches: str = ""
    shared: dict[str, str] = field(default_factory=dict)
    netdevs: dict[str, tuple[str, str]] = field(default_factory=dict)
    memory: tuple[int, int] = (0, 0)
    rows: tuple[Row, ...] = ()
    pool: Pool | None = None
    engine: Engine | None = None
    engine_port: int = 0
    engine_ready: bool = False
    engine_exit: int | None = None
    last_tail: tuple[str, ...] = ()
    first_available: int = 0
    needed_bytes: int = 0
    served_at: float = 0.0
    rank: Rank = field(default_factory=Rank)
    vital: Vital = field(default_factory=Vital)
    ended: tuple[str, float] = ("", 0.0)
    troubles: dict[str, str] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    pulse: int = 0
    compiling: str = ""
    alarm: str = ""
    collected: str = ""
    proved: bool = False
    selftest: str = "pending"
    selftest_lines: list[str] = field(default_factory=list)
    local_refusals: tuple[Refusal, ...] = ()
    group_refusals: tuple[Refusal, ...] = ()
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    answers: int = 0
    layout: Layout | None = None
    verbs: tuple[str, ...] = ()
    warm: asyncio.subprocess.Process | None = None
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
        facts, now, clock = self.facts, self.board.current, boottime()
        return About(
            hostname=self.hostname,
            boot_id=facts.boot_id if facts else "",
            tp=self.tp,
            topology=self.topology,
            head_host=self.text("HEAD_HOST", ""),
            role=self.text("ROLE", ""),
            settings=self.shared,
            interfaces=tuple(one for one in facts.interfaces if one.addresses) if facts else (),
            total=self.memory[0],
            available=self.memory[1],
            peers=tuple(f"{lan}:{view.port}" for lan, view in sorted(self.members.live().items()))
            if self.members
            else (),
            plan={name: str(value.value) for name, value in sorted(self.group_plan.values.items())}
            if self.group_plan
            else {},
            refusals=tuple(str(one)[:1900] for one in self.refusals[:20]),
            unfit=bool(self.local_refusals),
            stage=now.key,
            step=now.step[:1900],
            selftest=self.selftest,
            failed=self.selftest_fault()[:1900],
            healthy=self.proved,
            alarm=self.alarm[:1900],
            collected=self.collected,
            compiling=self.compiling[:200],
            pulse=self.pulse,
            caches=self.caches[:400],
            ended=self.ended[0][:1900],
            ended_ms=age_ms(self.ended[1], clock),
            answered_ms=age_ms(self.vital.answered_at, clock),
            stepped_ms=age_ms(self.vital.stepped_at, clock),
            requests=int(self.vital.running),
            troubles=tuple(text[:1900] for _, text in sorted(self.troubles.items())[:20]),
        )

    def selftest_fault(self) -> str:
        """The self-test's first bad line, without the mark; "" while there is none."""
        return next((line.removeprefix("FAIL ") for line in self.selftest_lines if line.startswith("FAIL ")), "")

    def member_answer(self, nonce: str, dialled: str) -> bytes:
        """/member.json, for the page's app. Empty while this box does not know its own address."""
        self.answers += 1
        return self.driver.answer(nonce, dialled) if self.driver else b"{}"

    def look_again(self) -> None:
        """Before a new incarnation is shown: cables are moved and MTUs set while a group is down."""
        from preflight.facts.network import interfaces

        if self.facts is not None:
            self.facts = replace(self.facts, interfaces=interfaces(self.root))

    def remember_memory(self) -> None:
        """The memory this incarnation has to offer; published once, so that all boxes size alike."""
        from preflight.facts import memory

        seen = memory(self.root)
        self.memory = (seen.total, seen.available)
        self.first_available = self.first_available or seen.available

    def reap(self) -> None:
        """Forget background tasks that are done; one that failed is a defect and fails the boot."""
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            task.result()
        if self.members is not None:
            self.members.reap()

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
