"""`gate speed compare A B`: the same prompts on two setups, paired.

The ratio of rates is the ratio of tokens per step (drafting luck and quality) divided by the ratio of step times, so
all three are shown: a gain that is all drafting on 16 prompts may be luck, one in step time is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.refusal import Refusal
from gate import stats

TOLERATED = 0.02  # slower by less than this is not held against a build


@dataclass(frozen=True)
class Row:
    """One class: B against A.

    ratio, low, high  geometric mean of rate ratios with its 95 % interval
    p, adjusted       exact two-sided signed-rank p, and after Holm over the classes
    drafting, step    geometric means of the ratios of tokens per step and of milliseconds per step, None where unknown
    detects           the smallest difference these pairs would have shown with 80 % power
    """

    work: str
    pairs: int
    dropped: int
    ratio: float
    low: float
    high: float
    p: float
    adjusted: float
    drafting: float | None
    step: float | None
    detects: float
    verdict: str


def refuse(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Raise Refusal for files that must not be compared."""
    for name, file in (("A", a), ("B", b)):
        cold = (file.get("conditions") or {}).get("cold") or []
        if cold:
            raise Refusal(
                f"run file {name}", f"cold: {'; '.join(cold)}", "a warm run", "Measure it again once nothing compiles."
            )
    for key in ("series", "params"):
        if a.get(key) != b.get(key):
            raise Refusal(
                f"the two files' {key}", f"{a.get(key)} and {b.get(key)}", "the same", "Only the same prompts pair."
            )


def pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Row]:
    """A row a class that both measured. Raises Refusal when the files must not be compared or nothing pairs."""
    refuse(a, b)
    rows: list[dict[str, Any]] = []
    theirs = {(run["work"], run["i"]): run for run in b["runs"]}
    for work in dict.fromkeys(run["work"] for run in a["runs"]):
        mine = [run for run in a["runs"] if run["work"] == work]
        both = [(run, theirs[(work, run["i"])]) for run in mine if (work, run["i"]) in theirs]
        good = [(one, other) for one, other in both if not one["problem"] and not other["problem"]]
        if len(good) < 2:
            continue
        logs = [math.log(other["rate"] / one["rate"]) for one, other in good]
        low, high = stats.interval(logs)
        rows.append(
            {
                "work": work,
                "pairs": len(good),
                "dropped": len(mine) - len(good),
                "logs": logs,
                "ratio": math.exp(float(np.mean(logs))),
                "low": math.exp(low),
                "high": math.exp(high),
                "p": stats.wilcoxon(logs),
                "drafting": _ratio(good, "tokens_per_step"),
                "step": _ratio(good, "ms_per_step"),
            }
        )
    if not rows:
        raise Refusal(
            "the two files", "no class with two pairs of good runs", "at least one", "Look at `problem` in their runs."
        )
    adjusted = stats.holm([row["p"] for row in rows])
    out = []
    for row, value in zip(rows, adjusted, strict=True):
        logs = row.pop("logs")
        found = stats.detects(float(np.std(logs, ddof=1)) / math.sqrt(2), len(logs), len(rows))
        out.append(
            Row(
                **row,
                adjusted=value,
                detects=found,
                verdict="differs" if value < stats.ALPHA else "no difference shown",
            )
        )
    return out


def _ratio(good: list[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> float | None:
    found = [other[name] / one[name] for one, other in good if one.get(name) and other.get(name)]
    return stats.geometric_mean(found) if len(found) == len(good) else None


def table(rows: list[Row]) -> list[str]:
    """The comparison as lines of text."""
    head = (
        f"{'class':<11} {'pairs':>5} {'B/A':>7}  {'95 % interval':<15} {'p (Holm)':>9} "
        f"{'tok/step':>9} {'ms/step':>8} {'detects':>8}  verdict"
    )
    lines = [head]
    for row in rows:
        drafting = f"{row.drafting:.3f}" if row.drafting else "-"
        step = f"{row.step:.3f}" if row.step else "-"
        detects = f"{row.detects:.1%}" if math.isfinite(row.detects) else "never"
        lines.append(
            f"{row.work:<11} {row.pairs:>5} {row.ratio:>7.3f}  {row.low:.3f} .. {row.high:.3f}  {row.adjusted:>9.2g} "
            f"{drafting:>9} {step:>8} {detects:>8}  {row.verdict}"
            + (f" ({row.dropped} dropped)" if row.dropped else "")
        )
    return lines
