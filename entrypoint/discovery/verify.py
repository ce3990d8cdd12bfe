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
FAST_S, IDLE_S, SLOW_S = 0.1, 0.5, 2.0
NAME_S = 2.0  # a name that is no member yet: asking a name server twice a second would be rude
ASK_S = 2.0
ASKED_S = SLOW_S / 2  # a member that was asked within this time is not asked back when it asks without news
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


@dataclass
class Poll:
    """The asking of one (host, port). wake: ask now; began: the last question; news: our last change is not told."""

    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = 0.0
    news: bool = False


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
        self._polls: dict[tuple[str, int], Poll] = {}
        self._kept: set[tuple[str, int]] = set()

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
        if key in self._polls or (len(self._polls) >= MOST and not self._make_room()):
            return
        if hint.source == STATIC:
            self._kept.add(key)
        self.hints.setdefault(key, f"not asked yet ({hint.source})")
        poll = self._polls[key] = Poll()
        poll.task = asyncio.ensure_future(self._follow(key, poll))

    def _make_room(self) -> bool:
        """Give up the oldest hint that never was a member and that nobody wrote into PEERS."""
        known = {(member.lan, member.port) for member in self.table.values()}
        for key, poll in self._polls.items():
            if key not in known and key not in self._kept:
                _cancel(poll)
                del self._polls[key]
                self.hints.pop(key, None)
                return True
        return False

    def poke(self) -> None:
        """Ask everybody now: our own state has changed, older answers no longer count."""
        for poll in self._polls.values():
            poll.news = True
            poll.wake.set()

    def asked(self, lan: str, news: bool) -> None:
        """The member at `lan` asks us. With `news` it is asked back at once (but never more than ten times a second:
        anybody at its address can say so): however slow the pace, a change is known everywhere when it happens.
        Without, it is asked back unless that was done lately: two boxes that are awake together wake half as often.
        """
        member = self.table.get(lan)
        poll = self._polls.get((lan, member.port)) if member is not None else None
        if poll is None:
            return
        since = boottime() - poll.began
        if news and since < FAST_S:
            asyncio.get_running_loop().call_later(FAST_S - since, poll.wake.set)
        elif news or since > ASKED_S:
            poll.wake.set()

    def reap(self) -> None:
        """Raise what a poll failed with: a defect must not look like a silent member."""
        for poll in self._polls.values():
            if poll.task is not None and poll.task.done():
                poll.task.result()

    async def stop(self) -> None:
        """End all polling."""
        tasks = [task for poll in self._polls.values() if (task := _cancel(poll)) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._polls.clear()

    # -- asking ----------------------------------------------------------------------------------------

    async def _follow(self, key: tuple[str, int], poll: Poll) -> None:
        """Ask one (host, port) for ever; the pace slows down while nobody is there."""
        host, port = key
        while True:
            began = poll.began = boottime()
            poll.wake.clear()
            news, poll.news, heard = poll.news, False, False
            try:
                address = await _resolve(host)
                view = await ask(address, port, self.group, self.secret, self.source, ASK_S, news)
                self._heard(key, address, view, began)
                heard = True
            except Refused as error:
                self._refused(key, began, str(error))
            except (Silent, NotVerified) as error:
                self._note(key, str(error))
            member = self._member(key)
            pause = self.pace() if member is not None else IDLE_S if _is_address(host) else NAME_S
            if member is not None and not heard:  # one lost question must not make it look silent, at whatever pace
                pause = min(pause, max(0.0, IDLE_S - (boottime() - began)))
                poll.news = poll.news or news
            if await _wait(poll.wake, pause):
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


def _cancel(poll: Poll) -> asyncio.Task[None] | None:
    if poll.task is not None:
        poll.task.cancel()
    return poll.task


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
