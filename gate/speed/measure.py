"""`gate speed run`: rates per class of prompt, with what makes them up.

A run is one greedy answer with thinking off. Its tag comes from series, class and index only: two setups measured with
the same series get the same prompts, so their runs pair, and no cache has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client import metrics as prometheus
from client.reply import Event, Reply
from gate import stats
from gate.check import Check, Outcome, Plot
from gate.lag import Window
from gate.right.count import first_bad
from gate.right.scripts import suspect
from gate.session import GREEDY, Scope, together
from gate.speed.prompts import CLASSES, COUNT_TO, SYSTEM, prompt

SINGLE = ("code", "prose", "structured", "counting")
OFF: dict[str, Any] = {"chat_template_kwargs": {"thinking": False, "enable_thinking": False}}
STEADY = 0.10  # spread of a class above which its figure is not worth comparing
FORMAT = "glm53-speed-1"


def is_mixed(work: str) -> int:
    """N of `mixedN`, else 0."""
    return int(work[5:]) if work.startswith("mixed") and work[5:].isdigit() else 0


async def answer(scope: Scope, work: str, tag: str, index: int, tokens: int) -> Reply:
    """One measured answer."""
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"[{tag}]\n\n{prompt(work, index)}"}]
    return await scope.client.chat(chat, max_tokens=scope.budget(tokens), **GREEDY, **OFF)


# problems that are nobody's fault but the measurement's: such runs are left out, and do not make a check fail
EXCUSED = ("client late", "someone else")


def problem(work: str, replies: Sequence[Reply], counted: float | None) -> str:
    """Why a run must not be compared, or an empty text. `counted`: tokens by the server's own counter."""
    for reply in replies:
        if not reply.text and not reply.reasoning:
            return "empty"
        if suspect(reply.text):
            return "suspect characters"
        if work == "counting":
            bad = first_bad(reply.text, COUNT_TO)
            if bad:
                return f"wrong count: {bad}"
    tokens = sum(reply.usage.completion for reply in replies if reply.usage)
    if counted is not None and counted > tokens * 1.02 + 8:
        return f"someone else used the server ({counted - tokens:.0f} tokens)"
    if counted is not None and counted < tokens * 0.98 - 8:
        return f"usage says {tokens} tokens, the server's counter {counted:.0f}"
    return ""


def together_rate(replies: Sequence[Reply]) -> tuple[int, float]:
    """Tokens and seconds of a batch: from the earliest first token to the last one; what came with the earliest is left
    out."""
    told = [reply for reply in replies if reply.decoded()]
    if not told:
        return 0, 0.0

    def began(reply: Reply) -> Event:
        return next((event for event in reply.events if event.tokens is not None), reply.events[0])

    earliest = min(told, key=lambda reply: reply.timing.sent + began(reply).at)
    start = earliest.timing.sent + began(earliest).at
    end = max(reply.timing.sent + reply.events[-1].at for reply in told)
    tokens = sum(reply.usage.completion for reply in told if reply.usage) - (began(earliest).tokens or 1)
    return tokens, end - start


def record(
    work: str,
    index: int,
    tag: str,
    replies: Sequence[Reply],
    before: prometheus.Metrics,
    after: prometheus.Metrics,
    late: Window,
) -> dict[str, Any]:
    """The row of a run."""
    drafting = prometheus.drafting(before, after)
    name = "vllm:generation_tokens_total"
    counted = after.sum(name) - before.sum(name) if after.has(name) else None
    if len(replies) == 1:
        tokens, seconds = replies[0].decoded() or (0, 0.0)
        rate = tokens / seconds if seconds else None
    else:
        tokens, seconds = together_rate(replies)
        rate = tokens / seconds if seconds else None
    steps = drafting.steps or (tokens if len(replies) == 1 else 0)
    first = [reply.timing.ttft_s for reply in replies if reply.timing.ttft_s is not None]
    each = [found for reply in replies if (found := reply.rate()) is not None]
    reason = problem(work, replies, counted) or late.complaint(seconds)
    if rate is None:
        reason = reason or "too few events to tell a rate"
    return {
        "work": work,
        "i": index,
        "tag": tag,
        "streams": len(replies),
        "tokens": tokens,
        "decode_s": seconds,
        "rate": rate,
        "ttft_s": stats.median(first),
        "per_stream": stats.median(each) if each else None,
        "tokens_per_step": drafting.tokens_per_step,
        "drafts_per_step": drafting.drafts_per_step,
        "acceptance": drafting.acceptance,
        "steps": drafting.steps or None,
        "ms_per_step": 1000 * seconds / steps if steps and len(replies) == 1 else None,
        "queue_s": max(reply.timing.queue_s for reply in replies),
        "longest_gap_s": max((gap for reply in replies for gap in reply.gaps()), default=None),
        "problem": reason,
    }


async def one(scope: Scope, work: str, index: int) -> dict[str, Any]:
    """Measure one run (or batch) of a class."""
    width = is_mixed(work)
    before = await scope.client.metrics()
    with scope.session.lag.window() as late:
        if width:
            jobs = []
            for stream in range(width):
                kind = CLASSES[(index + stream) % len(CLASSES)]
                tag = scope.tag(work, f"{index}.{stream}")
                jobs.append(answer(scope, kind, tag, index * width + stream, scope["tokens"]))
            replies = await together(*jobs)
        else:
            most = max(scope["tokens"], 3 * COUNT_TO) if work == "counting" else scope["tokens"]
            replies = [await answer(scope, work, scope.tag(work, index), index, most)]
    return record(work, index, scope.tag(work, index), replies, before, await scope.client.metrics(), late)


async def collect(scope: Scope) -> list[dict[str, Any]]:
    """All runs of all classes, warm-ups first and unrecorded."""
    runs: list[dict[str, Any]] = []
    for work in scope["workloads"]:
        count = scope["batches"] if is_mixed(work) else scope["runs"]
        missing = [index for index in range(count) if f"{work}/{index}" not in scope.ledger.rows]
        if missing:
            for number in range(scope["warmup"]):
                kind = CLASSES[number % len(CLASSES)] if is_mixed(work) else work
                await answer(scope, kind, scope.tag(work, f"warm{number}"), number, min(64, scope["tokens"]))
        for index in range(count):
            key = f"{work}/{index}"
            runs.append(await scope.once(key, lambda work=work, index=index: one(scope, work, index)))  # type: ignore[misc]
            rates = [run["rate"] for run in runs if run["work"] == work and run["rate"]]
            scope.note(f"{work} {index + 1}/{count}: median {stats.median(rates):.1f} tok/s" if rates else work)
    return runs


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per class: the rate with its interval, spread, what it could show in a comparison, and what it is made of.

    Runs with a problem are counted but not in the figures.
    """
    works = list(dict.fromkeys(run["work"] for run in runs))
    out: dict[str, dict[str, Any]] = {}
    for work in works:
        mine = [run for run in runs if run["work"] == work]
        good = [run for run in mine if not run["problem"]]
        if not good:
            out[work] = {"runs": 0, "problems": len(mine), "first_problem": mine[0]["problem"]}
            continue
        rates = [run["rate"] for run in good]
        cv = stats.spread(rates)
        low, high = stats.interval([run["tokens"] for run in good], [run["decode_s"] for run in good])

        def middle(name: str, good: list[Mapping[str, Any]] = good) -> float | None:
            found = [run[name] for run in good if run[name] is not None]
            return stats.median(found) if found else None

        out[work] = {
            "runs": len(good),
            "rate": sum(run["tokens"] for run in good) / sum(run["decode_s"] for run in good),
            "low": low,
            "high": high,
            "spread": cv,
            "detects": stats.detects(cv, len(good), len(works)),
            "tokens_per_step": middle("tokens_per_step"),
            "ms_per_step": middle("ms_per_step"),
            "ttft_s": middle("ttft_s"),
            "acceptance": middle("acceptance"),
            "drafts_per_step": middle("drafts_per_step"),
            "per_stream": middle("per_stream"),
            "median_rate": stats.median(rates),
            "outliers": [good[place]["i"] for place in stats.outliers(rates)],
            "problems": len(mine) - len(good),
            "first_problem": next((run["problem"] for run in mine if run["problem"]), ""),
        }
    return out


def pictures(runs: Sequence[Mapping[str, Any]]) -> tuple[Plot, ...]:
    """Every run as a dot per class, and over the order of measuring."""
    works = list(dict.fromkeys(run["work"] for run in runs))
    good = [run for run in runs if not run["problem"]]
    groups = [{"name": work, "values": [run["rate"] for run in good if run["work"] == work]} for work in works]
    lines = []
    for work in works:
        mine = [run for run in good if run["work"] == work]
        middle = stats.median([run["rate"] for run in mine]) if mine else 0.0
        # by its own median: four streams at once yield four times as much, and a drift of a few percent must be seen
        rates = [run["rate"] / middle if middle else 0.0 for run in mine]
        lines.append({"name": work, "x": [run["i"] for run in mine], "y": rates})
    return (
        Plot(
            "strip",
            "Decode rate per class (dots: runs, bar: median and quartiles)",
            "",
            "tokens per second",
            {"groups": groups},
        ),
        Plot("lines", "The same in the order measured", "run", "rate / median of its class", {"lines": lines}),
    )


async def run(scope: Scope) -> Outcome:
    """Measure; judge that the figures can be trusted, and against a reference where one is given."""
    from gate.speed import compare, files

    runs = await collect(scope)
    found = summary(runs)
    scope.session.conditions = await scope.session.watch.end()
    file = files.build(scope, runs, found)
    files.keep(scope, file)
    bad = [run for run in runs if run["problem"] and not run["problem"].startswith(EXCUSED)]
    excused = [run for run in runs if run["problem"].startswith(EXCUSED)]
    wrong = [
        f"{work}: {len(mine)} runs with a problem ({mine[0]['problem']})"
        for work in found
        if (mine := [run for run in bad if run["work"] == work])
    ]
    shown = ", ".join(f"{work} {entry['rate']:.1f}" for work, entry in found.items() if entry["runs"])
    plots = pictures(runs)
    if wrong:
        return Outcome("fail", "; ".join(wrong), found, plots)
    reference = scope.session.speed_reference
    if reference is not None:
        known = files.read(reference)
        rows = compare.pairs(known, file)
        slower = [r for r in rows if r.verdict == "differs" and r.ratio < 1 - compare.TOLERATED]
        if slower:
            return Outcome(
                "fail", "; ".join(f"{r.work} {r.ratio - 1:+.1%} against the reference" for r in slower), found, plots
            )
    thin = [work for work, entry in found.items() if 3 * entry["problems"] > entry["runs"] + entry["problems"]]
    if thin:
        reason = f"too few runs left of {', '.join(thin)} ({excused[0]['problem']})"
        return Outcome("inconclusive", reason, found, plots)
    noisy = [
        f"{work} {entry['spread']:.0%}"
        for work, entry in found.items()
        if not is_mixed(work) and entry["spread"] > STEADY
    ]
    if noisy:
        return Outcome("inconclusive", f"spread above {STEADY:.0%}: {', '.join(noisy)} (tok/s: {shown})", found, plots)
    return Outcome("pass", f"tok/s: {shown}", found, plots)


CHECK = Check(
    name="speed",
    room="speed",
    title="Decode rates by class of prompt",
    bar=(
        f"no run with a problem, spread of every single-stream class within {STEADY:.0%}, "
        "and not slower than a reference by over 2 % where one is given"
    ),
    why="A rate means nothing without its prompt class, its spread, and how much of it was drafting luck.",
    run=run,
    quick={
        "workloads": ["code", "prose", "structured", "counting", "mixed4"],
        "runs": 6,
        "batches": 4,
        "warmup": 1,
        "tokens": 256,
    },
    full={"workloads": [*SINGLE, "mixed4", "mixed8"], "runs": 16, "batches": 10, "warmup": 2, "tokens": 512},
)
