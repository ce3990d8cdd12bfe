"""What a check is, and what comes of it: a declared bar, a verdict and the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gate.session import Scope

Verdict = Literal["pass", "fail", "inconclusive"]
Room = Literal["right", "fair", "speed"]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Plot:
    """A picture of the report: `kind` names a function of gate/plots.py, `data` is its argument."""

    kind: Literal["lines", "strip", "bars"]
    title: str
    x: str
    y: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A verdict with its reason in one sentence, the figures behind it (name -> number or text) and pictures."""

    verdict: Verdict
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Check:
    """One question to a server.

    bar    what must hold, as a sentence a reader can agree or disagree with
    why    why anyone should care, one sentence
    quick, full  the sizes of its runs; quick None = only in `full`, both None = only by name
    """

    name: str
    room: Room
    title: str
    bar: str
    why: str
    run: Callable[[Scope], Awaitable[Outcome]]
    quick: Params | None = None
    full: Params | None = None
    by_name: Params | None = None

    def params(self, size: str) -> Params:
        """The sizes for `quick`, `full` or by name; the next larger one where a size is not declared."""
        sizes = {"quick": self.quick, "full": self.full}
        chosen = sizes.get(size) or self.full or self.quick or self.by_name
        assert chosen is not None
        return chosen


@dataclass(frozen=True)
class Result:
    """An outcome with what it took: goes into report.json."""

    check: str
    room: Room
    title: str
    bar: str
    why: str
    params: Params
    outcome: Outcome
    seconds: float
    requests: int
    failures: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def judged(right: int, total: int, what: str, wrong: str = "", **figures: Any) -> Outcome:
    """Pass when all of `total` are right; else fail with the first wrong one in the reason."""
    counts = {"right": right, "of": total, **figures}
    if total == 0:
        return Outcome("inconclusive", f"no {what} could be tried", counts)
    if right == total:
        return Outcome("pass", f"{right} of {total} {what}", counts)
    return Outcome(
        "fail", f"{right} of {total} {what}; first wrong: {wrong}" if wrong else f"{right} of {total} {what}", counts
    )
