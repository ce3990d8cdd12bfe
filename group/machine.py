"""The generation protocol as a pure function: (own state, what is seen, time) -> (own state, actions).

docs/generations.md holds the table and the reasons. Nothing here reads a clock, a file or a socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from group.view import Record, Seat, State, View, by_address

Engine = Literal["none", "started", "exited"]
ENGAGED: tuple[State, ...] = ("accepted", "launching", "running")
ENDED: tuple[State, ...] = ("stopping", "leaving", "refused")


@dataclass(frozen=True)
class Limits:
    """Seconds. accept_s: from accepting to the commit (it spans the fabric check); the rest as the knobs."""

    accept_s: float = 60.0
    join_s: float = 60.0
    lost_s: float = 30.0


@dataclass(frozen=True)
class Own:
    """This member's own protocol state; everything the others may see of it is in here.

    epoch       highest epoch seen or stored; promised: highest accepted
    record      what it accepted; committed: it has seen the commit (the head: has made it)
    together    all seats were seen running this record
    changed_at  time of its own last change: only requests begun later count
    """

    lan: str
    instance: str
    n: int = 0
    state: State = "joining"
    epoch: int = 0
    promised: int = 0
    record: Record | None = None
    checked: bool = False
    committed: bool = False
    together: bool = False
    changed_at: float = 0.0
    entered_at: float = 0.0
    ticked_at: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Sight:
    """The last word of one member: its view and when that request began; when a refused connection began."""

    view: View | None = None
    began: float = -1.0
    refused_began: float = -1.0


@dataclass(frozen=True)
class Formation:
    """What this member derives from the facts of all: the head it elects, seats in rank order, its plan's hash."""

    head: str
    order: tuple[str, ...]
    engine_addresses: Mapping[str, str]
    plan_hash: str


@dataclass(frozen=True)
class Moment:
    """Everything one step looks at.

    sights     by lan address, verified members only, without this one
    formation  None while not exactly TP members agree on a head and a plan
    fresh_id   random hex for a record, should one be written
    ports      (master_port, check_port), bind-tested just now; None until asked for
    checked    id of the record whose fabric check is done here
    engine     of this generation, here
    gone       confirmed since the stop: no engine process, memory back
    abort      why this box gives the generation up (the head's canary, a deadline), "" while it does not
    refused    this box refuses (the reason is in its view)
    leaving    this box was told to end
    """

    now: float
    sights: Mapping[str, Sight] = field(default_factory=dict)
    formation: Formation | None = None
    fresh_id: str = ""
    ports: tuple[int, int] | None = None
    checked: str = ""
    engine: Engine = "none"
    gone: bool = False
    abort: str = ""
    refused: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Persist:
    """Store the epoch (fsync) before anybody can see the new state."""

    epoch: int


@dataclass(frozen=True)
class FindPorts:
    """Bind-test two ports and step again."""


@dataclass(frozen=True)
class Check:
    """Run the fabric check of an accepted record."""

    record: Record


@dataclass(frozen=True)
class Launch:
    """Start the engine of a committed record."""

    record: Record


@dataclass(frozen=True)
class Stop:
    """The generation is over: stop the engine and confirm that it is gone."""

    reason: str


Action = Persist | FindPorts | Check | Launch | Stop


def step(own: Own, moment: Moment, limits: Limits) -> tuple[Own, tuple[Action, ...]]:
    """One step. Stepping again with nothing new changes nothing but `ticked_at`."""
    paused = own.ticked_at is not None and moment.now - own.ticked_at > limits.lost_s
    own = replace(own, ticked_at=moment.now)
    own, actions = _raise_epoch(own, moment)
    if own.state in ENGAGED:
        over = _over(own, moment, limits, paused)
        own, more = _end(own, moment, over) if over else _advance(own, moment)
    elif own.state == "stopping":
        own, more = _stopped(own, moment), ()
    else:
        own, more = _unengaged(own, moment)
    return own, (*actions, *more)


def _changed(own: Own, moment: Moment, state: State, reason: str | None = None) -> Own:
    return replace(
        own,
        state=state,
        changed_at=moment.now,
        entered_at=moment.now,
        reason=own.reason if reason is None else reason,
    )


def _raise_epoch(own: Own, moment: Moment) -> tuple[Own, tuple[Action, ...]]:
    """Epochs only grow. Only seats are listened to, or who may get one: a stranger must neither end a generation
    nor raise the epochs of a group that it is not part of.
    """
    listened: set[str] = set()
    if own.state in ENGAGED and own.record is not None:
        listened = {seat.lan for seat in own.record.seats}
    elif moment.formation is not None:
        listened = set(moment.formation.order)
    seen = max((s.view.epoch for lan, s in moment.sights.items() if lan in listened and s.view), default=0)
    if seen <= own.epoch:
        return own, ()
    return replace(own, epoch=seen), (Persist(seen),)


# -- without a generation ------------------------------------------------------------------------------


def _unengaged(own: Own, moment: Moment) -> tuple[Own, tuple[Action, ...]]:
    if moment.leaving:
        return (own if own.state == "leaving" else _changed(own, moment, "leaving", "told to end")), ()
    if moment.refused:
        return (own if own.state == "refused" else _changed(own, moment, "refused")), ()
    if own.state in ("refused", "leaving"):
        own = _changed(own, moment, "joining")
    if moment.formation is None:
        return (own if own.state == "joining" else _changed(own, moment, "joining")), ()
    if own.state == "joining":
        return _changed(own, moment, "ready"), ()
    if moment.formation.head == own.lan:
        return _propose(own, moment, moment.formation)
    return _accept(own, moment, moment.formation)


def _fresh(own: Own, sight: Sight | None) -> View | None:
    """The view, if its request began after this member's own last change and nothing was refused since."""
    if sight is None or sight.view is None or sight.began <= own.changed_at or sight.refused_began > sight.began:
        return None
    return sight.view


def _propose(own: Own, moment: Moment, formation: Formation) -> tuple[Own, tuple[Action, ...]]:
    seats = [Seat(0, own.lan, formation.engine_addresses[own.lan], own.instance, own.n)]
    for rank, lan in enumerate(formation.order[1:], start=1):
        view = _fresh(own, moment.sights.get(lan))
        if view is None or view.state != "ready" or (view.head, view.plan_hash) != (own.lan, formation.plan_hash):
            return own, ()
        seats.append(Seat(rank, lan, formation.engine_addresses[lan], view.instance, view.n))
    if moment.ports is None:
        return own, (FindPorts(),)
    epoch = own.epoch + 1
    record = Record(moment.fresh_id, epoch, tuple(seats), formation.plan_hash, *moment.ports)
    own = replace(_changed(own, moment, "accepted", ""), epoch=epoch, promised=epoch, record=record)
    return own, (Persist(epoch), Check(record))


def _accept(own: Own, moment: Moment, formation: Formation) -> tuple[Own, tuple[Action, ...]]:
    """Accept what the head proposes when it names this incarnation, this head, this plan, and a new epoch."""
    view = _fresh(own, moment.sights.get(formation.head))
    if view is None or view.state != "accepted" or view.record is None:
        return own, ()
    record, mine = view.record, view.record.seat(own.lan)
    acceptable = (
        mine is not None
        and (mine.instance, mine.n) == (own.instance, own.n)
        and tuple(seat.lan for seat in record.seats) == formation.order
        and (record.head.instance, record.head.n) == (view.instance, view.n)
        and record.plan_hash == formation.plan_hash
        and record.epoch > own.promised
        and record.epoch >= own.epoch
    )
    if not acceptable:
        return own, ()
    own = replace(_changed(own, moment, "accepted", ""), epoch=record.epoch, promised=record.epoch, record=record)
    return own, (Persist(record.epoch), Check(record))


# -- in a generation -----------------------------------------------------------------------------------


def _advance(own: Own, moment: Moment) -> tuple[Own, tuple[Action, ...]]:
    record = own.record
    assert record is not None
    if own.state == "accepted":
        if not own.checked and moment.checked == record.id:
            own = replace(own, checked=True, changed_at=moment.now)
        if _may_launch(own, moment, record):
            return replace(_changed(own, moment, "launching"), committed=True), (Launch(record),)
        return own, ()
    if own.state == "launching" and moment.engine == "started":
        own = replace(own, state="running", changed_at=moment.now)  # entered_at stays: JOIN_S counts from the commit
    if own.state == "running" and not own.together and _all_running(own, moment, record):
        own = replace(own, together=True)
    return own, ()


def _may_launch(own: Own, moment: Moment, record: Record) -> bool:
    """The head: all seats accepted and checked. A worker: the head itself says committed."""
    if own.lan != record.head.lan:
        view = _fresh(own, moment.sights.get(record.head.lan))
        return own.checked and view is not None and view.committed and _holds(view, record)
    views = [_fresh(own, moment.sights.get(seat.lan)) for seat in record.seats[1:]]
    return own.checked and all(view is not None and view.checked and _holds(view, record) for view in views)


def _holds(view: View, record: Record) -> bool:
    seat = record.seat(view.lan)
    named = seat is not None and (view.instance, view.n) == (seat.instance, seat.n)
    return named and view.state in ENGAGED and view.record == record


def _all_running(own: Own, moment: Moment, record: Record) -> bool:
    views = [_fresh(own, moment.sights.get(seat.lan)) for seat in record.seats if seat.lan != own.lan]
    return all(view is not None and view.state == "running" and _holds(view, record) for view in views)


def _over(own: Own, moment: Moment, limits: Limits, paused: bool) -> str:
    """Why the generation is over for everyone, or "" while it is not."""
    record = own.record
    assert record is not None
    if moment.leaving:
        return "this box was told to end"
    if moment.refused:
        return "this box refuses"
    if paused:
        return f"this box was paused for more than {limits.lost_s:g}s"
    if moment.engine == "exited":
        return "the engine of this box ended"
    if moment.abort:
        return moment.abort
    for seat in sorted(record.seats, key=lambda seat: by_address(seat.lan)):
        why = "" if seat.lan == own.lan else _seat_over(own, moment, record, seat)
        if why:
            return why
    waited = moment.now - own.entered_at
    if own.state == "accepted" and waited > limits.accept_s:
        return f"no commit within {limits.accept_s:g}s"
    if own.state != "accepted" and not own.together and waited > limits.join_s:
        return f"not all boxes started their engine within {limits.join_s:g}s of the commit"
    return ""


def _seat_over(own: Own, moment: Moment, record: Record, seat: Seat) -> str:
    sight = moment.sights.get(seat.lan)
    if sight is None:
        return ""
    if sight.refused_began > max(own.changed_at, sight.began):
        return f"{seat.lan} refuses connections: its kit is gone"
    view = _fresh(own, sight)
    if view is None:
        return ""
    if (view.instance, view.n) != (seat.instance, seat.n):
        return f"{seat.lan} started again" + (f" ({view.reason})" if view.reason else "")
    if view.state in ENDED:
        return f"{seat.lan} is {view.state}" + (f": {view.reason}" if view.reason else "")
    if view.epoch > record.epoch:
        return f"{seat.lan} has seen epoch {view.epoch}, ours is {record.epoch}"
    if view.record is not None and view.record.id != record.id:
        return f"{seat.lan} is in another generation"
    return ""


def _end(own: Own, moment: Moment, reason: str) -> tuple[Own, tuple[Action, ...]]:
    return _changed(own, moment, "stopping", reason), (Stop(reason),)


def _stopped(own: Own, moment: Moment) -> Own:
    """Once the engine is confirmed gone: the next incarnation, free to join again."""
    if not moment.gone:
        return own
    state: State = "leaving" if moment.leaving else "refused" if moment.refused else "joining"
    return replace(
        _changed(own, moment, state),
        n=own.n + 1,
        record=None,
        checked=False,
        committed=False,
        together=False,
    )
