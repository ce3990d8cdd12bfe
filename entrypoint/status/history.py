"""The throughput of the last half hour: a ring of samples in memory, filled by the head from its engine's /metrics."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from client.metrics import Metrics, parse
from entrypoint.status.throughput import Sample, Totals, drafter_trouble, sample, totals
from group.ask import boottime
from group.get import get

if TYPE_CHECKING:
    from entrypoint.boot import Boot

EVERY_S = 10.0
KEPT = 180  # half an hour
DRAFTER = "drafter"
JUDGED = 30  # samples: the drafter is judged over five minutes
ANSWER_S = 3.0
LARGEST = 4 * 1024**2

# Field of a sample -> digits it is shown with; the order of the columns in JSON.
FIELDS = {
    "decode": 1,
    "prefill": 1,
    "running": 0,
    "waiting": 0,
    "kv": 4,
    "per_step": 2,
    "accepted": 3,
    "hits": 3,
}
PAIRS = {"ttft": 4, "gap": 4}


class History:
    """Samples, newest last, and the counters since the engine's start."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.totals: Totals | None = None
        self._last: tuple[Metrics, float] | None = None
        self._judged: deque[Metrics] = deque(maxlen=JUDGED + 1)

    def take(self, now: Metrics, at: float, compiling: bool) -> str:
        """One reading; returns what is wrong with the drafter, or ""."""
        if self._last is not None and at > self._last[1]:
            before, then = self._last
            self.samples.append(sample(before, now, at - then, at, compiling))
        self._last, self.totals = (now, at), totals(now)
        self._judged.append(_only_drafting(now))
        return drafter_trouble(self._judged[0], self._judged[-1])

    def forget_engine(self) -> None:
        """A new engine counts from zero: no difference is made across its start. The samples stay."""
        self._last, self.totals = None, None
        self._judged.clear()

    def as_dict(self, now: float) -> dict[str, Any]:
        """Columns for JSON: `age_s` and every field, oldest first; None where nothing was observed."""
        columns: dict[str, list[Any]] = {"age_s": [round(now - one.at, 1) for one in self.samples]}
        for name, digits in FIELDS.items():
            columns[name] = [_rounded(getattr(one, name), digits) for one in self.samples]
        for name, digits in PAIRS.items():
            for index, label in enumerate(("p50", "p95")):
                columns[f"{name}_{label}"] = [_rounded(getattr(one, name)[index], digits) for one in self.samples]
        for name in ("prefilling", "compiling"):
            columns[name] = [getattr(one, name) for one in self.samples]
        return {"every_s": EVERY_S, **columns}


def _rounded(value: float | None, digits: int) -> float | None:
    """None also for what is no number: JSON has no NaN, and a page that fails for one would hide all the rest."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _only_drafting(now: Metrics) -> Metrics:
    """What the drafter's judgement needs; a whole reading is half a megabyte, thirty of them too much to keep."""
    return Metrics({name: rows for name, rows in now.samples.items() if name.startswith("vllm:spec_decode")})


async def fill(boot: Boot, history: History) -> None:
    """For ever: on the head, while its engine serves, one reading every EVERY_S."""
    engine = None
    while True:
        serving = boot.is_head and boot.engine_ready and boot.engine is not None
        if not serving or boot.engine is not engine:
            engine = boot.engine if serving else None
            history.forget_engine()
            boot.troubles.pop(DRAFTER, None)
        if serving:
            text = await read(boot.engine_port)
            if text is not None and boot.engine is engine:
                trouble = history.take(parse(text), boottime(), bool(boot.compiling))
                if trouble:
                    boot.troubles[DRAFTER] = trouble
                else:
                    boot.troubles.pop(DRAFTER, None)
        await asyncio.sleep(EVERY_S if serving else 1.0)


async def read(port: int) -> str | None:
    """The text of the engine's /metrics; None when it does not come in time, or is larger than any real one."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return (await get("127.0.0.1", port, "/metrics", largest=LARGEST)).decode(errors="replace")
    except (OSError, TimeoutError, ValueError):
        return None
