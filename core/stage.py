"""A stage: a step of one box's boot, with a name, a deadline and one function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Context = TypeVar("Context")
StageState = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True)
class Stage(Generic[Context]):
    """One line of the boot.

    key         short and stable, used in logs and JSON ("join")
    label       what the page shows ("Find the other boxes")
    deadline_s  seconds after which the page says the stage is late; None waits for ever on purpose
    run         does the step; progress goes through the context
    """

    key: str
    label: str
    deadline_s: float | None
    run: Callable[[Context], Awaitable[None]]


@dataclass
class StageProgress:
    """What the page knows of one stage: times on CLOCK_BOOTTIME, in seconds."""

    key: str
    label: str
    state: StageState = "waiting"
    started: float | None = None
    ended: float | None = None
    deadline_s: float | None = None
    step: str = ""
    detail: str = ""
