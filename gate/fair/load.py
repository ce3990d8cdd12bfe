"""The pieces fairness is measured with: long prompts no cache knows, short probes, a stream that is watched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from client.reply import Reply
from gate.check import Outcome, Plot
from gate.session import GREEDY, OFF, Scope
from gate.stats import describe
from gate.tokens import Pool

FLOOR_S = 1.0  # a wait below it bothers nobody, however long the other work is
SHARE = 0.25  # of the long work's own time that others may wait at most
TALK = "Tell the story of a harbour through one whole year, month by month, in plain words."


async def prefill(scope: Scope, pool: Pool, tokens: int, *mark: object) -> Reply:
    """One cold prompt of exactly `tokens` tokens, one token of answer."""
    return await scope.client.complete(
        pool.prompt(tokens, scope.tag(*mark)), max_tokens=1, temperature=0, ignore_eos=True
    )


async def probe(scope: Scope, *mark: object) -> Reply:
    """A short question, as a chat user sends it."""
    chat = [{"role": "user", "content": f"[{scope.tag(*mark)}] Name one colour."}]
    return await scope.client.chat(chat, max_tokens=8, **GREEDY, **OFF)


class Talk:
    """A long streamed answer in the background: `arrivals` are its events' times, also when it is ended early."""

    def __init__(self, scope: Scope, tokens: int, *mark: object) -> None:
        self.arrivals: list[float] = []
        chat = [{"role": "user", "content": f"[{scope.tag(*mark)}] {TALK}"}]
        options: dict[str, Any] = {"max_tokens": scope.budget(tokens), "ignore_eos": True, **GREEDY, **OFF}
        work = scope.client.chat(chat, on_text=lambda text: self.arrivals.append(now()), **options)
        self.task = asyncio.create_task(work)

    async def end(self) -> None:
        """Stop it if it still runs. Raises ClientError when it had failed by itself."""
        self.task.cancel()
        found = (await asyncio.gather(self.task, return_exceptions=True))[0]
        if isinstance(found, BaseException) and not isinstance(found, asyncio.CancelledError):
            raise found

    def gaps(self, start: float, end: float) -> list[float]:
        """Gaps between events that overlap the time from start to end."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return [later - earlier for earlier, later in pairs if later > start and earlier < end]


async def probes_until(scope: Scope, done: asyncio.Task[Any], every_s: float, mark: str) -> list[Reply]:
    """A short probe every `every_s` seconds until `done` is; those that began before its end are returned."""
    found: list[asyncio.Task[Reply]] = []
    while not done.done():
        found.append(asyncio.create_task(probe(scope, mark, len(found))))
        await asyncio.wait({done}, timeout=every_s)
        scope.note(f"{len(found)} short requests beside the long work")
    return list(await asyncio.gather(*found))


async def timed(scope: Scope, round: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """A round's row with how late this client was meanwhile."""
    with scope.session.lag.window() as late:
        row = await round
    return {**row, "late_s": late.worst_s}


def ttfts(replies: list[Reply]) -> list[float]:
    """Times to first token in seconds."""
    return [reply.timing.ttft_s for reply in replies if reply.timing.ttft_s is not None]


def allowed(long_s: float) -> float:
    """How long others may wait beside work of `long_s` seconds."""
    return max(FLOOR_S, SHARE * long_s)


LATE_S = FLOOR_S / 4


def verdict(wrong: list[str], late_s: float, figures: dict[str, Any], plots: tuple[Plot, ...] = ()) -> Outcome | None:
    """The outcome of what went wrong, or None when nothing did. A client that was late itself accuses nobody."""
    if wrong and late_s > LATE_S:
        reason = f"this machine woke up {late_s:.2f} s late meanwhile, so this may be its own doing: {wrong[0]}"
        return Outcome("inconclusive", reason, figures, plots)
    return Outcome("fail", "; ".join(wrong), figures, plots) if wrong else None


def size(scope: Scope, tokens: int) -> int:
    """The prompt size asked for, or what the context holds."""
    limit = scope.session.limit
    return min(tokens, int(limit * 0.9)) if limit else tokens


def now() -> float:
    """The clock of Timing."""
    return time.perf_counter()


def classes(**values: list[float]) -> dict[str, Any]:
    """Percentiles per class of request."""
    return {name: describe(found) for name, found in values.items()}
