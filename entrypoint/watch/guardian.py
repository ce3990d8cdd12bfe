"""The loops that feed the pure rules: the head's watch over tokens, a worker's over a silent head, the boot's over
standing still.
"""

from __future__ import annotations

import asyncio

from core.log import log
from core.units import show_seconds
from entrypoint.boot import Boot
from entrypoint.watch import vital, wedge
from entrypoint.watch.alarm import end_generation
from entrypoint.watch.counters import Counters, parse
from entrypoint.watch.phases import phase
from group.ask import boottime
from group.get import get

METRICS_S = 3.0
METRICS_BYTES = 4 * 1024**2  # more is no vLLM's


async def metrics(port: int) -> Counters | None:
    """vLLM's counters; None when it does not answer in time, which proves nothing."""
    try:
        async with asyncio.timeout(METRICS_S):
            text = await get("127.0.0.1", port, "/metrics", largest=METRICS_BYTES)
    except (OSError, TimeoutError, ValueError):
        return None
    return parse(text.decode(errors="replace"))


class TokenWatch:
    """The head's: does every request that runs get somewhere? One a generation; `look()` every second or two."""

    def __init__(self, boot: Boot, url: str, model: str, key: str | None) -> None:
        settings, _, _ = boot.need()
        now = boottime()
        self.boot = boot
        self.limits = wedge.Limits(settings.number("WEDGE_S"), settings.number("IDLE_CANARY_S"))
        self.known = wedge.Known(now, now)
        self.untried = boot.vital.answered_at is None  # SELF_TEST=0: this engine has proved nothing yet
        self.asked_at: float | None = None
        self.canary: asyncio.Task[str] | None = None
        self.question = (url, model, key)

    async def look(self) -> None:
        """One look; ends the generation when it is wedged."""
        answered = self._canary_answered()
        counters = await metrics(self.boot.engine_port)
        self.boot.vital = vital.look(self.boot.vital, counters, answered, boottime())
        seen = wedge.Seen(boottime(), counters, self._compiling(), self.asked_at, answered)
        self.known, due, wedged = wedge.look(self.known, seen, self.limits)
        if wedged:
            await end_generation(self.boot, wedged)
        elif (due or self.untried) and self.canary is None:
            from entrypoint.canary import one_token  # the client's packages, not needed before

            self.asked_at, self.untried = boottime(), False
            self.canary = asyncio.create_task(one_token(*self.question, 4 * self.limits.wedge_s))

    @property
    def quiet(self) -> bool:
        """Nothing was asked of the engine when it was last looked at, by nobody: there is nothing to be seen soon."""
        return self.canary is None and not self.untried and not self.boot.vital.running

    def _canary_answered(self) -> bool:
        task = self.canary
        if task is None or not task.done():
            return False
        wrong = task.result()
        self.canary, self.asked_at = None, None
        if wrong:
            log("watch", f"the idle canary brought no token: {wrong}")
        return not wrong

    def _compiling(self) -> str:
        _, _, members = self.boot.need()
        return self.boot.compiling or next(
            (v.about.compiling for v in members.live().values() if v.about.compiling), ""
        )

    def close(self) -> None:
        """Forget the question that is under way."""
        if self.canary is not None:
            self.canary.cancel()


class HeadSilent:
    """A worker's: the head is silent, and no orders reach this rank. Then its engine waits for nobody."""

    def __init__(self, lost_s: float) -> None:
        self.lost_s = lost_s
        self.still = wedge.Still(boottime())

    def look(self, boot: Boot) -> str:
        """Why this box gives the generation up, or ""."""
        silent = boot.head_view() is None
        mark = ("silent", boot.activity.orders) if silent else ("heard", boottime())
        self.still, seconds = wedge.stood(self.still, mark, boottime())
        if not silent or seconds < self.lost_s:
            return ""
        return f"the head is silent, and for {seconds:.0f}s no step reached this rank"


class BootWatch:
    """The head's, until the API answers: no box's boot moves any more."""

    def __init__(self, stall_s: float, caches: str = "") -> None:
        self.stall_s, self.caches = stall_s, caches
        self.still = wedge.Still(boottime())

    def look(self, boot: Boot) -> str:
        """Why the generation is given up, or ""; with the phase and what to look at."""
        _, _, members = boot.need()
        pulses = (boot.pulse, *sorted((lan, view.about.pulse) for lan, view in members.live().items()))
        self.still, seconds = wedge.stood(self.still, pulses, boottime())
        at = phase(boot.engine.tail(200) if boot.engine is not None else ())
        warm = "cold" not in " ".join((self.caches or "cold", *(v.about.caches for v in members.live().values())))
        longest = self.stall_s * (at.warm if warm else at.cold)
        if seconds < longest:
            return ""
        what = f"no log line, read, memory or cache growth on any box for {show_seconds(longest)}"
        what += ", with warm caches" if warm else ""
        return f"vLLM stood still while {at.name}: {what}; look at {at.look_at}"
