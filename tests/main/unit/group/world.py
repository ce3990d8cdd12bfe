"""A world of members that run the real machine over a network that loses, delays and reorders, in simulated time.

Each member has an engine that starts, runs and ends; killing a member forgets everything but its stored epoch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from group.machine import Check, FindPorts, Formation, Launch, Limits, Moment, Own, Persist, Sight, Stop, step
from group.view import About, View

LIMITS = Limits(accept_s=20, join_s=20, lost_s=10)
LIVE_S = 5.0


def lan(index: int) -> str:
    return f"10.0.0.{index + 1}"


@dataclass
class Answer:
    """A view on its way: when it was asked for, and what was said."""

    asker: int
    of: int
    began: float
    view: View | None  # None: connection refused


@dataclass
class Member:
    index: int
    own: Own
    disk: int = 0  # the stored epoch
    alive: bool = True
    paused: bool = False
    sights: dict[str, Sight] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    engine: str = "none"  # none, started, exited
    engine_of: str = ""  # record id the running engine belongs to
    checked: str = ""
    gone: bool = False
    sequence: int = 0


class World:
    """Members, messages in flight, a clock. Every launch is judged against what all members accepted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.now = 100.0
        self.ids = itertools.count(1)
        self.members = [Member(i, Own(lan(i), self.fresh())) for i in range(size)]
        self.flying: list[Answer] = []
        self.accepted: dict[str, set[str]] = {}  # record id -> lans that accepted it
        self.epochs: dict[str, int] = {}  # lan -> highest epoch it ever showed
        self.launched: dict[str, set[str]] = {}

    def fresh(self) -> str:
        return f"{next(self.ids):016x}"

    # -- what the members do ---------------------------------------------------------------------------

    def formation(self, member: Member) -> Formation | None:
        """Everybody live: the lowest address is head. As the boot does it, only free members count."""
        order = []
        for other in range(self.size):
            name = lan(other)
            if other == member.index:
                order.append(name)
                continue
            sight = member.sights.get(name)
            live = sight and sight.view and sight.refused_began <= sight.began
            if not live or self.now - member.heard_at.get(name, -99) > LIVE_S:
                return None
            order.append(name)
        return Formation(order[0], tuple(order), {name: name for name in order}, "plan")

    def tick(self, index: int) -> None:
        member = self.members[index]
        if not member.alive or member.paused:
            return
        ports: tuple[int, int] | None = None
        for _ in range(4):
            moment = Moment(
                now=self.now,
                sights=dict(member.sights),
                formation=self.formation(member),
                fresh_id=self.fresh(),
                ports=ports,
                checked=member.checked,
                engine=member.engine,  # type: ignore[arg-type]
                gone=member.gone,
            )
            before = member.own
            member.own, actions = step(before, moment, LIMITS)
            ports = None
            for action in actions:
                self.act(member, action)
                if isinstance(action, FindPorts):
                    ports = (20000, 20001)
            if member.own.n != before.n:
                member.engine, member.checked, member.gone = "none", "", False
            self.judge(member)
            if not actions:
                break

    def act(self, member: Member, action: object) -> None:
        match action:
            case Persist(epoch):
                assert epoch >= member.disk, "a stored epoch goes back"
                member.disk = epoch
            case Check(record):
                self.accepted.setdefault(record.id, set()).add(member.own.lan)
                member.checked = record.id
            case Launch(record):
                everybody = {seat.lan for seat in record.seats}
                assert self.accepted.get(record.id) == everybody, "launched a record that not all accepted"
                self.launched.setdefault(record.id, set()).add(member.own.lan)
                member.engine, member.engine_of = "started", record.id
            case Stop():
                member.engine, member.engine_of = "none", ""
                member.gone = True

    def judge(self, member: Member) -> None:
        name = member.own.lan
        assert member.own.epoch >= self.epochs.get(name, 0), "an epoch goes back"
        assert member.own.epoch <= max(member.disk, member.own.epoch)
        assert member.disk >= member.own.epoch, "an epoch was shown before it was stored"
        self.epochs[name] = member.own.epoch
        if member.engine_of:
            assert member.own.record is not None
            assert member.own.record.id == member.engine_of, "an engine outlives its record"

    # -- the network -----------------------------------------------------------------------------------

    def ask(self, asker: int, of: int) -> None:
        """A request reaches its member now; the answer flies until `deliver`."""
        member, other = self.members[asker], self.members[of]
        if not member.alive or member.paused or other.paused or asker == of:
            return
        self.flying.append(Answer(asker, of, self.now, self.view(other) if other.alive else None))

    def view(self, member: Member) -> View:
        member.sequence += 1
        own, form = member.own, self.formation(member)
        return View(
            lan=own.lan,
            port=8082,
            instance=own.instance,
            n=own.n,
            sequence=member.sequence,
            state=own.state,
            epoch=own.epoch,
            head=form.head if form else "",
            plan_hash=form.plan_hash if form else "",
            record=own.record,
            checked=own.checked,
            committed=own.committed,
            about=About(),
        )

    def deliver(self, place: int) -> None:
        answer = self.flying.pop(place)
        member = self.members[answer.asker]
        if not member.alive or member.paused:
            return
        name = lan(answer.of)
        known = member.sights.get(name, Sight())
        if answer.view is None:
            member.sights[name] = replace(known, refused_began=max(known.refused_began, answer.began))
        else:
            old = known.view
            if old and old.instance == answer.view.instance and answer.view.sequence < old.sequence:
                return
            if answer.began < known.began:
                return  # one request at a time per member: an answer never overtakes a later one
            member.sights[name] = replace(known, view=answer.view, began=answer.began)
            member.heard_at[name] = self.now
        self.tick(answer.asker)

    # -- faults ----------------------------------------------------------------------------------------

    def crash(self, index: int) -> None:
        """kill -9 of the kit: its engine dies with it."""
        member = self.members[index]
        member.alive = False
        member.engine, member.engine_of = "none", ""
        self.flying = [answer for answer in self.flying if answer.asker != index]

    def start(self, index: int) -> None:
        old = self.members[index]
        if old.alive:
            return
        own = Own(lan(index), self.fresh(), epoch=old.disk, promised=old.disk)
        self.members[index] = Member(index, own, disk=old.disk)

    def engine_dies(self, index: int) -> None:
        if self.members[index].engine == "started":
            self.members[index].engine = "exited"
            self.members[index].engine_of = ""

    def calm(self, seconds: float) -> None:
        """No more faults: everybody runs, every question is answered in order."""
        for index, member in enumerate(self.members):
            member.paused = False
            self.start(index)
        self.flying.clear()
        until = self.now + seconds
        self.calm_round(1)  # everybody looks at the clock: who was paused for too long has not noticed before
        while self.now < until and not self.serving():
            self.calm_round(1)
        self.calm_round(5)  # and it lasts

    def calm_round(self, rounds: int) -> None:
        """Everybody who runs asks everybody, all answers arrive in order, all step."""
        for _ in range(rounds):
            self.now += 0.3
            for asker in range(self.size):
                for of in range(self.size):
                    self.ask(asker, of)
            self.now += 0.1
            while self.flying:
                self.deliver(0)
            for index in range(self.size):
                self.tick(index)

    def serving(self) -> bool:
        """All engines run one record."""
        ids = {member.own.record.id if member.own.record else "" for member in self.members}
        together = all(member.own.together and member.engine == "started" for member in self.members)
        return together and len(ids) == 1
