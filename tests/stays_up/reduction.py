"""One state for all that differ in names only: why the exploration may leave the others out.

The machine (group/machine.py) cannot tell such states apart, so what holds for one holds for all:

    incarnations   it compares (instance, n) for equality and nothing else; which number or text it is means nothing.
                   Of each member those that something still refers to are numbered anew, oldest first.
    epochs         it compares two, takes the larger, and adds 1: all of a state may be moved by the same amount. Their
                   distances stay, because a head that is behind proposes an epoch that exists already.
    promised       an acceptance wants record.epoch > promised and >= epoch, so all values below epoch are one.
    workers        it elects nobody and orders nothing: the formation's order comes from outside, `all` and `any` go
                   over the seats, and the order of seats chooses no more than the text of a reason. So workers may
                   change places, everything that names them with them. Sorted by what cannot name anybody; equals stay
                   where they are, which leaves some states in twice and none out.
                   "Comes to serve" is tried with one order of polls; for exchanged workers that is another, as fair.
    faults left    with fewer left, less can follow. Layer by layer, a state that was reached with more left is done.

`tests/stays_up/unit/test_explored.py` maps every state of unreduced runs and compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from group.machine import Own
from group.view import Record, Seat

if TYPE_CHECKING:
    from tests.stays_up.explorer import Down, Explorer, Flight, Seen, State, Up

Name = tuple[int, int, int]  # member, start, n: an incarnation, in the order in which they came


def name_of(instance: str, n: int) -> Name:
    """The incarnation, from what the explorer calls it."""
    return int(instance[0], 16) - 1, int(instance[1:], 16), n


@dataclass
class Reduction:
    """Maps states of one explorer; everything about an `Own` is looked up once."""

    explorer: Explorer
    _names: dict[int, tuple[Name, ...]] = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)
    _kinds: dict[int, int] = field(default_factory=dict)
    _kind_ids: dict[object, int] = field(default_factory=dict)
    _renamed: dict[object, int] = field(default_factory=dict)

    def names(self, own: int) -> tuple[Name, ...]:
        """The incarnations that an Own names: its own and those of its record; none in a view that counts no more."""
        found = self._names.get(own)
        if found is None:
            it = self.explorer.owns[own]
            if it.lan == "0.0.0.0":
                found = ()
            else:
                seats = it.record.seats if it.record is not None else ()
                found = (name_of(it.instance, it.n), *(name_of(seat.instance, seat.n) for seat in seats))
            self._names[own] = found
        return found

    def kind(self, own: int) -> int:
        """A number for what of an Own names nobody."""
        found = self._kinds.get(own)
        if found is None:
            it = self.explorer.owns[own]
            behind = it.epoch - it.record.epoch if it.record is not None else -1
            key = (it.state, it.checked, it.committed, it.together, behind)
            found = self._kinds[own] = self._kind_ids.setdefault(key, len(self._kind_ids))
        return found

    def lowest(self, own: int) -> int:
        """The lowest epoch that an Own knows of; 0 for none."""
        found = self._epochs.get(own)
        if found is None:
            it = self.explorer.owns[own]
            found = self._epochs[own] = min(it.epoch, it.record.epoch) if it.record is not None else it.epoch
        return found

    def __call__(self, state: State, order: Sequence[int] = ()) -> State:
        """The state that stands for this one; `order` puts the members in a given order instead."""
        explorer, size = self.explorer, self.explorer.size
        views = explorer.views
        members, _, flights, accepted, left = state
        used: set[int] = set()
        lowest = 1 << 30
        for member in members:
            if member[0] < 0:
                lowest = min(lowest, int(member[1]))
                continue
            used.add(member[0])
            for seen in member[2]:  # type: ignore[union-attr]
                if seen[0] >= 0:
                    used.add(views[seen[0]][0])
        for flight in flights:
            if flight[2] >= 0:
                used.add(views[flight[2]][0])
        known: set[Name] = set()
        for own in used:
            named = self.names(own)
            known.update(named)
            if named:
                lowest = min(lowest, self.lowest(own))
        shift = lowest - 1  # the lowest becomes 1: 0 is for "none"
        order = order or self.order(state)
        place = [0] * size  # old index -> new index
        for new, old in enumerate(order):
            place[old] = new
        counts = [0] * size
        numbers: dict[Name, int] = {}
        for name in sorted(known):
            numbers[name] = counts[name[0]]
            counts[name[0]] += 1
        where = tuple(place)

        def own_of(own: int) -> int:
            key = (own, shift, where, *[numbers[name] for name in self.names(own)])
            found = self._renamed.get(key)
            if found is None:
                found = self._renamed[key] = self.rename(own, shift, where, numbers)
            return found

        def view_of(view: int) -> int:
            if view < 0:
                return view
            own, formed = views[view]
            return explorer.view_id(own_of(own), formed)

        made: list[Up | Down] = []
        for old in order:
            member = members[old]
            if member[0] < 0:
                made.append((-1, int(member[1]) - shift, 0))
                continue
            known_here: tuple[Seen, ...] = member[2]  # type: ignore[assignment]
            sights = tuple(
                [(view_of(view), fresh, refused) for view, fresh, refused in map(known_here.__getitem__, order)]
            )
            made.append((own_of(member[0]), bool(member[1]), sights))
        moved: list[Flight] = sorted((place[a], place[b], view_of(v), f) for a, b, v, f in flights)
        kept = frozenset([(epoch - shift, place[index]) for epoch, index in accepted])
        starts = tuple([counts[old] - 1 for old in order])
        return tuple(made), starts, tuple(moved), kept, left

    def order(self, state: State) -> list[int]:
        """The head, then the workers sorted by what names nobody."""
        members = state[0]
        size = len(members)
        if size == 2:
            return [0, 1]
        head = members[0]

        def seen(member: object, other: int) -> tuple[int, bool, int]:
            view, fresh, refused = member[2][other]  # type: ignore[index]
            return (-1 if view < 0 else self.kind(self.explorer.views[view][0]), fresh, refused)

        def key(index: int) -> tuple[object, ...]:
            member = members[index]
            asks = tuple([(f[1] == 0, f[3]) for f in state[2] if f[0] == index])
            asked = tuple([(f[0] == 0, f[3]) for f in state[2] if f[1] == index])
            heads = seen(head, index) if head[0] >= 0 else (-1, False, 0)
            if member[0] < 0:
                return (-1, False, (-1, False, 0), heads, asks, asked, member[1])
            return (self.kind(member[0]), member[1], seen(member, 0), heads, asks, asked, 0)

        return [0, *sorted(range(1, size), key=key)]

    def rename(self, own: int, shift: int, place: tuple[int, ...], numbers: dict[Name, int]) -> int:
        """The Own with every name in it changed."""
        it = self.explorer.owns[own]
        if it.lan == "0.0.0.0":
            return self.explorer.own_id(replace(it, epoch=it.epoch - shift)) if it.epoch else own

        def named(instance: str, n: int) -> tuple[int, str]:
            name = name_of(instance, n)
            index = place[name[0]]
            return index, f"{index + 1:x}{numbers[name]:x}"

        index, instance = named(it.instance, it.n)
        record = None
        if it.record is not None:
            seats = []
            for seat in it.record.seats:
                at, called = named(seat.instance, seat.n)
                lan = self.explorer.lan(at)
                seats.append(Seat(at, lan, lan, called, 0))
            seats.sort(key=lambda seat: seat.rank)
            epoch = it.record.epoch - shift
            ports = (20000 + 2 * (epoch - 1), 20001 + 2 * (epoch - 1))
            record = Record(f"{seats[0].instance}0000", epoch, tuple(seats), it.record.plan_hash, *ports)
        return self.explorer.own_id(
            Own(
                lan=self.explorer.lan(index),
                instance=instance,
                n=0,
                state=it.state,
                epoch=it.epoch - shift,
                promised=it.promised - shift,
                record=record,
                checked=it.checked,
                committed=it.committed,
                together=it.together,
            )
        )
