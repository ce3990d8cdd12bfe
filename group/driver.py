"""The thin driver of the machine: feeds it what is seen, stores the epoch, finds ports, tells the boot what to do.

It starts and stops nothing itself: `launch` and `over` are read by the stages, which act.
"""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

from core.log import log
from group.ask import boottime
from group.machine import (
    ENGAGED,
    Check,
    Engine,
    FindPorts,
    Formation,
    Launch,
    Limits,
    Moment,
    Own,
    Persist,
    Sight,
    Stop,
    step,
)
from group.ports import find_ports
from group.signing import answer
from group.store import Store
from group.view import About, Record, View

TICK_S = 0.25
# Once all run, time alone ends nothing but the generation of a box that was paused: everything else comes by poke().
# At most a quarter of LOST_S: a tick must not look like a pause.
QUIET_TICK_S = 1.0
COMPLAIN_S = 30.0


class GenerationOver(Exception):
    """Raised inside a waiting stage when the generation has ended; the text says why."""


class Driver:
    """One member's protocol, running. Levels (`formation`, `engine`, ...) are set by the boot, then `poke()`."""

    def __init__(
        self,
        *,
        lan: str,
        port: int,
        group: str,
        secret: str | None,
        limits: Limits,
        ports: tuple[int, int],
        store: Store,
        about: Callable[[], About],
        sights: Callable[[], Mapping[str, Sight]],
        instance: str = "",
    ) -> None:
        self.own = Own(lan=lan, instance=instance or secrets.token_hex(8), epoch=store.epoch, promised=store.epoch)
        self.port, self.group, self.secret = port, group, secret
        self.limits, self.ports, self.store = limits, ports, store
        self.about, self.sights = about, sights
        self.formation: Formation | None = None
        self.checked = ""
        self.engine: Engine = "none"
        self.gone = False
        self.abort = ""
        self.refused = False
        self.leaving = False
        self.launch: Record | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._sequence = 0
        self.trouble = ""  # why nothing can be agreed on although all are ready, for people
        self._complained = 0.0
        # Groups that share a machine (two labs) start at places of their own: a port is bound long after it is tested.
        self._offset = zlib.crc32(f"{group} {lan}".encode())
        self._changed = asyncio.Event()

    # -- what others see -------------------------------------------------------------------------------

    def view(self) -> View:
        """This member as the others see it now."""
        self._sequence += 1
        own, formation = self.own, self.formation
        return View(
            lan=own.lan,
            port=self.port,
            instance=own.instance,
            n=own.n,
            sequence=self._sequence,
            state=own.state,
            epoch=own.epoch,
            head=formation.head if formation else "",
            plan_hash=formation.plan_hash if formation else "",
            record=own.record,
            checked=own.checked,
            committed=own.committed,
            reason=own.reason,
            about=self.about(),
        )

    def answer(self, nonce: str, dialled: str) -> bytes:
        """/member.json for a valid nonce, signed for the address that was dialled."""
        return answer(self.view(), self.group, dialled, nonce, self.secret)

    # -- stepping --------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Step now: something that the machine looks at has changed."""
        self._step(None)
        self._wake()

    def _step(self, found: tuple[int, int] | None) -> None:
        moment = Moment(
            now=boottime(),
            sights=self.sights(),
            formation=self.formation,
            fresh_id=secrets.token_hex(16),
            ports=found,
            checked=self.checked,
            engine=self.engine,
            gone=self.gone,
            abort=self.abort,
            refused=self.refused,
            leaving=self.leaving,
        )
        before = self.own
        after, actions = step(before, moment, self.limits)
        for action in actions:
            if isinstance(action, Persist) and not self._stored(action.epoch):
                return  # nothing happened: the next tick tries again
        self.own = after
        if replace(after, ticked_at=None) != replace(before, ticked_at=None):
            self._note(before)
        for action in actions:
            match action:
                case FindPorts():
                    free = find_ports(*self.ports, after.epoch + 1 + self._offset)
                    if free is None:
                        log("agree", "no free pair of ports", range=f"{self.ports[0]}-{self.ports[1]}")
                    else:
                        self._step(free)
                case Launch(record):
                    self.launch = record
                case Check() | Stop() | Persist():
                    pass  # levels: the stages see them in `own.state`

    def _stored(self, epoch: int) -> bool:
        """True once the epoch is on the disk; only then may `own` be shown to anybody."""
        try:
            self.store.keep_epoch(epoch)
        except OSError as error:
            self.trouble = f"STATE_DIR takes no more: {error.strerror} ({self.store.file})"
            now = boottime()
            if now - self._complained > COMPLAIN_S:
                log("group", f"the epoch cannot be stored: {error}", epoch=epoch)
                self._complained = now
            return False
        self.trouble = ""
        return True

    def _note(self, before: Own) -> None:
        own = self.own
        if own.state != before.state:
            reason = f": {own.reason}" if own.reason and own.state in ("stopping", "leaving") else ""
            generation, epoch = (own.record.id[:8], own.record.epoch) if own.record else ("-", own.epoch)
            log("group", f"{before.state} -> {own.state}{reason}", n=own.n, generation=generation, epoch=epoch)
            if own.state == "stopping":
                self.gone = False
            if own.state not in ENGAGED:
                self.launch = None
        if own.n != before.n:
            self.engine, self.checked, self.abort, self.gone = "none", "", "", False
        self.on_change()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, timeout_s: float) -> None:
        """Return at the next change of anything, or after `timeout_s`."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when `holds()`. Raises GenerationOver when the generation ends first."""
        while True:
            self._still_on()
            if holds():
                return
            await self.changed(TICK_S)  # what `holds` looks at may change without a word

    async def pause(self, seconds: float) -> None:
        """Return after `seconds`, however often something changes. Raises GenerationOver when the generation ends."""
        due = boottime() + seconds
        self._still_on()
        while (left := due - boottime()) > 0:
            await self.changed(left)
            self._still_on()

    async def over(self) -> NoReturn:
        """Raise GenerationOver when the generation ends."""
        while True:
            self._still_on()
            await self._changed.wait()

    def _still_on(self) -> None:
        if self.own.state == "stopping":
            raise GenerationOver(self.own.reason)

    async def run(self) -> None:
        """Tick for ever: deadlines and the self-fence need steps even when nothing arrives. Wakes nobody for nothing:
        an idle kit is to cost next to no processor time.
        """
        while True:
            self._step(None)
            quiet = self.own.state == "running" and self.own.together
            await asyncio.sleep(min(QUIET_TICK_S, self.limits.lost_s / 4) if quiet else TICK_S)
