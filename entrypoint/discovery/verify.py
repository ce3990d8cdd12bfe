"""From hints to verified members: ask each over HTTP, keep what they last said, tell a dead kit from a silent one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from entrypoint.discovery.provider import STATIC, Hint
from group.ask import Refused, Silent, ask, boottime
from group.machine import Sight
from group.signing import NotVerified
from group.view import View

LIVE_S = 5.0  # a member whose last good answer is older does not count for an election
FAST_S, IDLE_S, SLOW_S = 0.1, 0.5, 1.0
NAME_S = 2.0  # a name that is no member yet: asking a name server twice a second would be rude
ASK_S = 2.0
FORGET_S = 60.0
MOST = 64  # members and hints kept; a LAN full of garbage must not fill the memory


@dataclass
class Member:
    """One verified lan address and its last word."""

    lan: str
    port: int
    sight: Sight
    seen_at: float
    note: str = ""

    def live(self, now: float) -> bool:
        """True while it answers: its last word is young and no connection was refused since."""
        return now - self.seen_at < LIVE_S and self.sight.refused_began <= self.sight.began

    def hear(self, view: View, began: float, now: float) -> bool:
        """Take a verified view; False when it is older than what is known (lower sequence)."""
        known = self.sight.view
        if known is not None and known.instance == view.instance and view.sequence < known.sequence:
            return False
        self.sight = replace(self.sight, view=view, began=began)
        self.seen_at, self.note = now, ""
        return True


@dataclass
class Claims:
    """Which starts of the kit have said that a lan address is theirs. A, then B, then A again: two boxes share it.

    A kit that starts again is A, then B: an instance never comes back.
    """

    instances: list[str] = field(default_factory=list)
    alternating: tuple[str, ...] = ()
    at: float = 0.0

    def hear(self, instance: str, now: float) -> None:
        """Somebody claims the address, by whatever way it was reached."""
        if self.instances and self.instances[-1] == instance:
            return
        if instance in self.instances:
            self.alternating, self.at = tuple(sorted({instance, self.instances[-1]})), now
        self.instances = [*self.instances[-7:], instance]


class Members:
    """The table of verified members of one group. `pace` says how often to ask; `changed` is told of every news."""

    def __init__(self, *, lan: str, instance: str, group: str, secret: str | None, source: str) -> None:
        self.lan, self.instance = lan, instance
        self.group, self.secret, self.source = group, secret, source
        self.table: dict[str, Member] = {}
        self.hints: dict[tuple[str, int], str] = {}  # (host, port) -> what became of it, for people
        self.claims: dict[str, Claims] = {}
        self.twin: tuple[str, float] | None = None  # another instance on our own address, when
        self.pace: Callable[[], float] = lambda: FAST_S
        self.changed: Callable[[], None] = lambda: None
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._kept: set[tuple[str, int]] = set()
        self._wake = asyncio.Event()

    # -- what the others read --------------------------------------------------------------------------

    def sights(self) -> dict[str, Sight]:
        """The machine's input."""
        return {lan: member.sight for lan, member in self.table.items()}

    def live(self) -> dict[str, View]:
        """Views of the members that count now, by lan address."""
        now = boottime()
        return {
            lan: member.sight.view
            for lan, member in self.table.items()
            if member.sight.view is not None and member.live(now)
        }

    def shared_addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses at which two starts of the kit answer in turn, with both instances."""
        now = boottime()
        found = {
            lan: claims.alternating
            for lan, claims in self.claims.items()
            if claims.alternating and now - claims.at < FORGET_S
        }
        if self.twin is not None and now - self.twin[1] < LIVE_S:
            found[self.lan] = tuple(sorted((self.instance, self.twin[0])))
        return found

    # -- hints -----------------------------------------------------------------------------------------

    def on_hint(self, hint: Hint, there: bool) -> None:
        """A provider, or another member, says that somebody may be there (or has gone)."""
        key = (hint.host, hint.port)
        if not there or not hint.host or not 1 <= hint.port <= 65535:
            # A good-bye is a hint too: anybody can send one. The poll will see for itself.
            return
        if key in self._tasks or (len(self._tasks) >= MOST and not self._make_room()):
            return
        if hint.source == STATIC:
            self._kept.add(key)
        self.hints.setdefault(key, f"not asked yet ({hint.source})")
        self._tasks[key] = asyncio.ensure_future(self._follow(key))

    def _make_room(self) -> bool:
        """Give up the oldest hint that never was a member and that nobody wrote into PEERS."""
        known = {(member.lan, member.port) for member in self.table.values()}
        for key in self._tasks:
            if key not in known and key not in self._kept:
                self._tasks.pop(key).cancel()
                self.hints.pop(key, None)
                return True
        return False

    def poke(self) -> None:
        """Ask everybody now: our own state has changed, older answers no longer count."""
        self._wake.set()
        self._wake = asyncio.Event()

    def reap(self) -> None:
        """Raise what a poll failed with: a defect must not look like a silent member."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def stop(self) -> None:
        """End all polling."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    # -- asking ----------------------------------------------------------------------------------------

    async def _follow(self, key: tuple[str, int]) -> None:
        """Ask one (host, port) for ever; the pace slows down while nobody is there."""
        host, port = key
        while True:
            began = boottime()
            wake = self._wake
            try:
                address = await _resolve(host)
                view = await ask(address, port, self.group, self.secret, self.source, ASK_S)
                self._heard(key, address, view, began)
            except Refused as error:
                self._refused(key, began, str(error))
            except (Silent, NotVerified) as error:
                self._note(key, str(error))
            member = self._member(key)
            pause = self.pace() if member is not None else IDLE_S if _is_address(host) else NAME_S
            if await _wait(wake, pause):
                # A change on our side: everybody is asked again at once, but never more than about 50 times a second.
                await asyncio.sleep(max(0.0, 0.02 - (boottime() - began)))

    def _member(self, key: tuple[str, int]) -> Member | None:
        member = self.table.get(key[0])
        return member if member is not None and member.port == key[1] else None

    def _heard(self, key: tuple[str, int], address: str, view: View, began: float) -> None:
        if view.instance == self.instance:
            self.hints[key] = "this box itself"
            return
        now = boottime()
        if view.lan == self.lan:
            self.hints[key] = "another box with our own lan address"
            self.twin = (view.instance, now)
            self.changed()
            return
        if view.lan in self.claims or len(self.claims) < MOST:
            self.claims.setdefault(view.lan, Claims()).hear(view.instance, now)
        if (address, key[1]) != (view.lan, view.port):
            # Reached by a name or a second address: what counts is who answers at its lan address.
            self.hints[key] = f"is {view.lan}:{view.port}"
            self.on_hint(Hint(view.lan, view.port, f"via {key[0]}"), True)
            return
        if key[0] != view.lan:
            self.hints[key] = f"is {view.lan}"
            self.on_hint(Hint(view.lan, view.port, f"via {key[0]}"), True)
            return
        member = self.table.get(view.lan)
        if member is None:
            if len(self.table) >= MOST:
                return
            member = self.table[view.lan] = Member(view.lan, view.port, Sight(), now)
        member.port = view.port
        if member.hear(view, began, now):
            self.hints[key] = "verified"
            for peer in view.about.peers:
                host, _, port = peer.rpartition(":")
                if port.isdecimal() and len(port) <= 5 and _is_address(host) and host != self.lan:
                    self.on_hint(Hint(host, int(port), f"via {view.lan}"), True)
            self.changed()

    def _refused(self, key: tuple[str, int], began: float, why: str) -> None:
        self.hints[key] = why
        member = self._member(key)
        if member is not None:
            member.note = "refuses connections: its kit is not running"
            member.sight = replace(member.sight, refused_began=began)
            self.changed()

    def _note(self, key: tuple[str, int], why: str) -> None:
        self.hints[key] = why
        member = self._member(key)
        if member is not None:
            member.note = why


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


async def _resolve(host: str) -> str:
    """The IPv4 address of a host name; Silent when the name is unknown."""
    if _is_address(host):
        return host
    try:
        async with asyncio.timeout(ASK_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
    except (OSError, TimeoutError, ValueError):  # ValueError: what no name can look like
        raise Silent(f"{host}: no such name") from None
    return str(found[0][4][0])


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
