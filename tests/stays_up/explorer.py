"""Every order of events that a bounded number of faults allows, run on the real machine (group/machine.py).

Free, at any time and in any order: a poll (question, answer and step at once, or never: that is a loss), a fabric
check that ends, an engine that comes up, a stop that is confirmed, a killed kit that starts again, the arrival of a
delayed answer. Counted as faults:

    crash   the kit is killed; its engine may live on until that kit starts again
    die     the engine ends by itself
    pause   a box stands still for longer than LOST_S
    late    a deadline of the protocol passes (no commit, or not all running)
    delay   one answer stays on the way, until it overtakes or is overtaken by anything

Time is left out of the state: of every question only whether it began after the asker's own last change counts. A
question that reaches its box later than it began shows a younger view with the same mark, so that case is within.
A record's id is its proposer's incarnation: a head writes one record in each. States that differ in names only are
one (tests/stays_up/reduction.py).

`coarse`, for three and more members: a kit that starts sees all others for the first time at once; that all run is
seen at once too; and a fabric check takes no time. What a head collects for a proposal and for a commit stays fine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from group.machine import Check, FindPorts, Formation, Launch, Limits, Moment, Own, Persist, Sight, step
from group.view import View
from tests.stays_up.reduction import Reduction

LIMITS = Limits(accept_s=60, join_s=60, lost_s=30)
CHANGED, BEFORE, AFTER, NOW = 5.0, 4.0, 6.0, 10.0
FAULTS = ("crash", "die", "pause", "late", "delay")

Seen = tuple[int, bool, int]  # view (-1: none), fresh, refused since (0: no, 1: before the last change, 2: after)
Up = tuple[int, bool, tuple[Seen, ...]]  # own, engine process, sights of all (its own entry unused)
Down = tuple[int, int, int]  # -1, stored epoch, 0; an engine that outlives its kit is swept by the next start
Flight = tuple[int, int, int, bool]  # asker, asked, view (-1: refused), fresh
State = tuple[tuple[Up | Down, ...], tuple[int, ...], tuple[Flight, ...], frozenset[tuple[int, int]], int]
# members, starts of each kit, flights, (epoch, member) of acceptances, faults left

BLANK: Seen = (-1, False, 0)


@dataclass
class Explorer:
    """All reachable states of `size` members with `faults` faults; every one is judged, and must come to serve."""

    size: int
    faults: int
    kinds: tuple[str, ...] = FAULTS
    coarse: bool = False
    reduced: bool = True  # one state for all that differ in names only
    layers: list[int] = field(default_factory=list)  # states first reached with 0, 1, ... faults
    owns: list[Own] = field(default_factory=list)
    views: list[tuple[int, bool]] = field(default_factory=list)
    transitions: int = 0
    _own_ids: dict[Own, int] = field(default_factory=dict)
    _view_ids: dict[tuple[int, bool], int] = field(default_factory=dict)
    _steps: dict[tuple[int, Up, str], tuple[Up, int, int]] = field(default_factory=dict)
    _made_views: dict[int, View] = field(default_factory=dict)
    _live: set[int] = field(default_factory=set)  # hashes, as in `run`: 64 bits tell millions of states apart

    def lan(self, index: int) -> str:
        return f"10.0.0.{index + 1}"

    # -- interning -------------------------------------------------------------------------------------

    def own_id(self, own: Own) -> int:
        promised = own.epoch if own.promised == own.epoch else own.epoch - 1  # tests/stays_up/reduction.py says why
        own = replace(own, promised=promised, changed_at=CHANGED, entered_at=CHANGED, ticked_at=None, reason="")
        found = self._own_ids.get(own)
        if found is None:
            found = self._own_ids[own] = len(self.owns)
            self.owns.append(own)
        return found

    def view_id(self, own: int, formed: bool) -> int:
        key = (own, formed)
        found = self._view_ids.get(key)
        if found is None:
            found = self._view_ids[key] = len(self.views)
            self.views.append(key)
        return found

    def view(self, number: int) -> View:
        made = self._made_views.get(number)
        if made is None:
            own_number, formed = self.views[number]
            own = self.owns[own_number]
            made = self._made_views[number] = View(
                lan=own.lan,
                port=8082,
                instance=own.instance,
                n=own.n,
                sequence=1,
                state=own.state,
                epoch=own.epoch,
                head=self.lan(0) if formed else "",
                plan_hash="plan" if formed else "",
                record=own.record,
                checked=own.checked,
                committed=own.committed,
            )
        return made

    # -- one member's step -----------------------------------------------------------------------------

    def formed(self, index: int, sights: tuple[Seen, ...]) -> bool:
        return all(seen[0] >= 0 and seen[2] == 0 for other, seen in enumerate(sights) if other != index)

    def local(self, index: int, member: Up, event: str) -> tuple[Up, int, int]:
        """(member after the event, epoch it launches or 0, epoch it accepts or 0)."""
        key = (index, member, event)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._local(index, member, event)
        return found

    def _local(self, index: int, member: Up, event: str) -> tuple[Up, int, int]:
        number, engine, sights = member
        own = self.owns[number]
        if event == "engine":
            engine = True
        order = tuple(self.lan(i) for i in range(self.size))
        formed = self.formed(index, sights) and event != "pause"
        moment = Moment(
            now=NOW,
            sights={self.lan(i): self._sight(seen) for i, seen in enumerate(sights) if i != index},
            formation=Formation(order[0], order, {lan: lan for lan in order}, "plan") if formed else None,
            fresh_id=f"{own.instance}{own.n:04x}",
            checked=own.record.id if event == "check" and own.record else "",
            engine="exited" if event == "die" else "started" if engine else "none",
            gone=event == "gone",
        )
        before = replace(own, ticked_at=NOW - (1000 if event == "pause" else 1))
        if event == "late":
            before = replace(before, entered_at=NOW - 1000)
        launched = accepted = 0
        for _ in range(6):
            after, actions = step(before, moment, LIMITS)
            assert after.epoch >= before.epoch, "an epoch goes back"
            assert after.epoch == before.epoch or Persist(after.epoch) in actions, (
                "an epoch is shown before it is stored"
            )
            changed = after.changed_at == NOW
            checked = after.record.id if self.coarse and after.state == "accepted" and after.record else ""
            moment = replace(moment, now=NOW, gone=False, ports=None, engine="started" if engine else "none")
            for action in actions:
                if isinstance(action, FindPorts):
                    moment = replace(moment, ports=(20000 + 2 * after.epoch, 20001 + 2 * after.epoch))
                if isinstance(action, Launch):
                    launched = action.record.epoch
                if isinstance(action, Check):
                    accepted = action.record.epoch
            if changed:  # whatever was asked before this change no longer counts
                sights = tuple((view, False, min(refused, 1)) for view, _, refused in sights)
                moment = replace(
                    moment,
                    sights={self.lan(i): self._sight(seen) for i, seen in enumerate(sights) if i != index},
                    checked=checked,
                )
            if after.n != own.n:
                engine = False
                moment = replace(moment, engine="none")
            settled = not changed and not actions
            before = replace(after, changed_at=CHANGED, entered_at=CHANGED, ticked_at=NOW)
            if settled:
                break
        else:
            raise AssertionError(f"does not settle: {before}")
        if event == "die":
            engine = False
        kept = tuple(BLANK if i == index else self.kept(before, seen) for i, seen in enumerate(sights))
        return (self.own_id(before), engine, kept), launched, accepted

    def kept(self, own: Own, seen: Seen) -> Seen:
        """What of a sight can still matter: of one that no longer counts (every change of `own` makes it so) its epoch,
        and that there is one; a fresh view that changed nothing matters only where the machine wants all seats at
        once: `ready` to a head, or holding the same record.
        """
        number, fresh, refused = seen
        if number < 0:
            return -1, False, min(refused, 1)
        if fresh and not refused:
            view = self.view(number)
            same = own.record is not None and view.record == own.record
            if self.coarse:
                same = same and own.state == "accepted" and view.checked and own.lan == self.lan(0)
            if same or (own.state == view.state == "ready" and own.lan == self.lan(0)):
                return number, True, 0
        return self.stale(own, number), False, min(refused, 1)

    def stale(self, own: Own, number: int) -> int:
        """A view that does not count any more: only an epoch above the own one is told from none."""
        epoch = self.view(number).epoch
        return self.view_id(self.own_id(Own("0.0.0.0", "0", epoch=epoch if epoch > own.epoch else 0)), False)

    def _sight(self, seen: Seen) -> Sight:
        number, fresh, refused = seen
        view = None if number < 0 else self.view(number)
        began = -1.0 if number < 0 else AFTER if fresh else BEFORE
        at = {0: -1.0, 1: BEFORE + 0.5, 2: AFTER + 1}[refused]
        return Sight(view, began, at)

    # -- the whole -------------------------------------------------------------------------------------

    def start(self) -> State:
        members = tuple(self.fresh(i, 0, 0) for i in range(self.size))
        return members, (0,) * self.size, (), frozenset(), self.faults

    def fresh(self, index: int, starts: int, epoch: int) -> Up:
        own = Own(self.lan(index), f"{index + 1:x}{starts:x}", epoch=epoch, promised=epoch)
        return self.own_id(own), False, (BLANK,) * self.size

    def shown(self, index: int, member: Up | Down) -> int:
        """The view that a member shows now; -1: its port refuses."""
        if member[0] < 0:
            return -1
        return self.view_id(member[0], self.formed(index, member[2]))  # type: ignore[arg-type]

    def then(self, state: State, index: int, member: Up, event: str, fault: int = 0) -> State:
        """The state after one member's step."""
        members, starts, flights, accepted, left = state
        after, launched, took = self.local(index, member, event)
        self.transitions += 1
        if took:
            accepted |= {(took, index)}
        if launched:
            missing = [i for i in range(self.size) if (launched, i) not in accepted]
            assert not missing, f"{self.lan(index)} launches epoch {launched}; not accepted by {missing}: {state}"
        changed = after[0] != member[0]
        if changed and any(flight[0] == index for flight in flights):
            own = self.owns[after[0]]
            flights = tuple(
                sorted(
                    (a, b, v if v < 0 else self.stale(own, v), False) if a == index else (a, b, v, f)
                    for a, b, v, f in flights
                )
            )
        members = (*members[:index], after, *members[index + 1 :])
        if took or changed:
            held = {self.owns[m[0]].record.epoch for m in members if m[0] >= 0 and self.owns[m[0]].record}  # type: ignore[union-attr]
            accepted = frozenset(pair for pair in accepted if pair[0] in held)
        return members, starts, flights, accepted, left - fault

    def see(self, state: State, asker: int, asked: int, number: int, fresh: bool) -> State:
        """An answer arrives at its asker, who steps."""
        member: Up = state[0][asker]  # type: ignore[assignment]
        known = member[2][asked]
        seen: Seen = (known[0], known[1], 2 if fresh else max(known[2], 1)) if number < 0 else (number, fresh, 0)
        if seen == known:
            return state
        sights = (*member[2][:asked], seen, *member[2][asked + 1 :])
        return self.then(state, asker, (member[0], member[1], sights), "see")

    def ready(self, state: State, index: int) -> str:
        """The free event that waits inside a member: a check, an engine, a stop; "" for none."""
        member = state[0][index]
        if member[0] < 0:
            return ""
        own = self.owns[member[0]]
        if own.state == "accepted" and not own.checked:
            return "check"
        if own.state == "launching" and not member[1]:
            return "engine"
        return "gone" if own.state == "stopping" else ""

    def restart(self, state: State, index: int) -> State:
        """A kit that was killed starts again: sweeps what outlived it, and reads its epoch from the disk."""
        members, starts, flights, accepted, left = state
        down = members[index]
        starts = (*starts[:index], starts[index] + 1, *starts[index + 1 :])
        fresh = self.fresh(index, starts[index], int(down[1]))
        self.transitions += 1
        return (*members[:index], fresh, *members[index + 1 :]), starts, flights, accepted, left

    def meet(self, state: State, index: int) -> State:
        """All others are seen at once, if all are up."""
        member: Up = state[0][index]  # type: ignore[assignment]
        views = [self.shown(other, one) for other, one in enumerate(state[0])]
        if min(view for other, view in enumerate(views) if other != index) < 0:
            return state
        sights = tuple(BLANK if other == index else (view, True, 0) for other, view in enumerate(views))
        return self.then(state, index, (member[0], member[1], sights), "see")

    def deliver(self, state: State, place: int) -> State:
        members, starts, flights, accepted, left = state
        asker, asked, number, fresh = flights[place]
        state = (members, starts, (*flights[:place], *flights[place + 1 :]), accepted, left)
        return self.see(state, asker, asked, number, fresh)

    def free(self, state: State) -> Iterator[State]:
        """All states one event without a fault away."""
        members, _, flights, _, _ = state
        for place in range(len(flights)):
            yield self.deliver(state, place)
        for index, member in enumerate(members):
            if member[0] < 0:
                yield self.restart(state, index)
                continue
            event = self.ready(state, index)
            if event:
                yield self.then(state, index, member, event)  # type: ignore[arg-type]
            if self.coarse and member[2][index - 1][0] < 0:  # type: ignore[index]
                yield self.meet(state, index)
                continue
            own = self.owns[member[0]]
            if self.coarse and own.state == "running" and not own.together:
                yield self.meet(state, index)
            for other in range(self.size):
                # One question at a time per member: while an answer is on the way nothing overtakes it on that way.
                if other != index and not any(f[0] == index and f[1] == other for f in flights):
                    yield self.see(state, index, other, self.shown(other, members[other]), True)

    def faulty(self, state: State) -> Iterator[State]:
        """All states one fault away."""
        members, starts, flights, accepted, left = state
        for index, member in enumerate(members):
            if member[0] < 0:
                continue
            own = self.owns[member[0]]
            down: Down = (-1, own.epoch, 0)
            kept = tuple(flight for flight in flights if flight[0] != index)
            if "crash" in self.kinds:
                yield (*members[:index], down, *members[index + 1 :]), starts, kept, accepted, left - 1
            if "die" in self.kinds and member[1]:
                yield self.then(state, index, member, "die", 1)  # type: ignore[arg-type]
            if "pause" in self.kinds:
                yield self.then(state, index, member, "pause", 1)  # type: ignore[arg-type]
            if "late" in self.kinds and own.state in ("accepted", "launching", "running") and not own.together:
                yield self.then(state, index, member, "late", 1)  # type: ignore[arg-type]
            for other in range(self.size) if "delay" in self.kinds else ():
                if other != index and not any(f[0] == index and f[1] == other for f in flights):
                    flight = (index, other, self.shown(other, members[other]), True)
                    yield members, starts, tuple(sorted((*flights, flight))), accepted, left - 1

    # -- what must hold --------------------------------------------------------------------------------

    def judge(self, state: State) -> None:
        """No two engines alive have one rendezvous and different records; records of one epoch are one record."""
        ids: dict[int, str] = {}
        for member in state[0]:
            own = self.owns[member[0]] if member[0] >= 0 else None
            if own is not None and own.record is not None:
                known = ids.setdefault(own.record.epoch, own.record.id)
                assert known == own.record.id, f"two records of epoch {own.record.epoch}: {state}"
            if own is not None and member[1]:
                assert own.record is not None, f"an engine without a record: {state}"
                assert own.state in ("launching", "running", "stopping"), f"an engine while {own.state}: {state}"

    def serving(self, state: State) -> bool:
        owns = [self.owns[member[0]] for member in state[0] if member[0] >= 0 and member[1]]
        ids = {own.record.id for own in owns if own.record and own.together}
        return len(owns) == self.size and len(ids) == 1 and all(own.together for own in owns)

    def comes_to_serve(self, state: State, same: Reduction | None = None) -> None:
        """Faults over, everybody polls in turn: all serve one generation; a deadline passes when nothing else moves."""
        path = list[int]()
        now = (*state[:4], 0)
        for _ in range(120):
            if same is not None and path:
                now = same(now)
            key = hash(now)
            if key in self._live:
                break
            path.append(key)
            if self.serving(now):
                break
            later = self._round(now)
            if later == now:  # time passes
                for index, member in enumerate(now[0]):
                    if member[0] >= 0 and self.owns[member[0]].state in ("accepted", "launching", "running"):
                        later = self.then(later, index, later[0][index], "late")  # type: ignore[arg-type]
                assert later != now, f"stuck for ever: {[self.owns[m[0]] for m in now[0] if m[0] >= 0]}"
            now = later
        else:
            raise AssertionError(f"does not come to serve: {[self.owns[m[0]] for m in now[0] if m[0] >= 0]}")
        self._live.update(path)

    def _round(self, state: State) -> State:
        while state[2]:
            state = self.deliver(state, 0)
        for index in range(self.size):
            if state[0][index][0] < 0:
                state = self.restart(state, index)
        for index in range(self.size):
            for other in range(self.size):
                if other != index:
                    state = self.see(state, index, other, self.shown(other, state[0][other]), True)
            if self.coarse and self.owns[state[0][index][0]].state == "running":
                state = self.meet(state, index)
            event = self.ready(state, index)
            if event:
                state = self.then(state, index, state[0][index], event)  # type: ignore[arg-type]
        return state

    def run(self, most: int = 50_000_000, keep: set[State] | None = None) -> int:
        """Number of states. AssertionError names the first state that breaks a rule. `keep` gets them all.

        With `reduced`, layer by layer of faults: what was reached with more faults left is done.
        """
        if not self.reduced:
            return self._run_all(most, keep)
        same = Reduction(self)
        first = same(self.start())
        seen, raw = {hash(first[:4])}, set[int]()
        layer = [first]
        while layer:
            done, queue, later = 0, deque(layer), list[State]()
            layer_of = layer[0][4]
            while queue:
                state = queue.popleft()
                done += 1
                if keep is not None:
                    keep.add((*state[:4], 0))
                self.judge(state)
                self.comes_to_serve(state, same)
                for after in self.free(state):
                    key = hash(after[:4])
                    if key in raw:
                        continue
                    raw.add(key)
                    after = same(after)
                    key = hash(after[:4])
                    if key not in seen:
                        seen.add(key)
                        queue.append(after)
                later.append(state)
                assert len(seen) < most, "more states than expected"
            self.layers.append(done)
            layer = []
            for state in later if layer_of else ():
                for after in self.faulty(state):
                    after = same(after)
                    key = hash(after[:4])
                    if key not in seen:
                        seen.add(key)
                        layer.append(after)
        return len(seen)

    def _run_all(self, most: int, keep: set[State] | None) -> int:
        first = self.start()
        seen, queue = {hash(first)}, deque([first])
        while queue:
            state = queue.popleft()
            if keep is not None:
                keep.add(state)
            self.judge(state)
            self.comes_to_serve(state)
            more = [self.free(state)]
            if state[4]:
                more.append(self.faulty(state))
            for each in more:
                for after in each:
                    key = hash(after)
                    if key not in seen:
                        seen.add(key)
                        queue.append(after)
            assert len(seen) < most, "more states than expected"
        return len(seen)
