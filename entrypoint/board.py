"""Where the boot stands: the stage list with times, written by the boot, read by the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core.log import log
from core.stage import Stage, StageProgress
from entrypoint.status.facts import facts_of
from entrypoint.status.own import status
from entrypoint.status.truth import Verdict, judge
from group.ask import boottime

if TYPE_CHECKING:
    from entrypoint.boot import Boot


class Board:
    """The stage list with times, and `status()` for /status.json, /healthz and the page."""

    def __init__(self, stages: Sequence[Stage[Boot]], boot: Boot) -> None:
        self.boot = boot
        self.progress = [StageProgress(stage.key, stage.label, deadline_s=stage.deadline_s) for stage in stages]
        self.current = self.progress[0]

    # -- written by the boot ---------------------------------------------------------------------------

    def begin(self, key: str) -> None:
        """A stage starts; what comes after it waits again."""
        index = next(i for i, progress in enumerate(self.progress) if progress.key == key)
        for later in self.progress[index:]:
            later.state, later.started, later.ended, later.step, later.detail = "waiting", None, None, "", ""
        self.current = self.progress[index]
        self.current.state, self.current.started = "running", boottime()

    def step(self, text: str, detail: str = "") -> None:
        """What the current stage is doing; logged when it changes."""
        if text != self.current.step:
            log(self.current.key, text)
        self.current.step, self.current.detail = text, detail

    def end(self, *, failed: bool = False) -> None:
        """The current stage is over."""
        self.current.state, self.current.ended = ("failed" if failed else "done"), boottime()

    # -- read by the page ------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Is the cluster healthy, and if not, why: as far as this box knows."""
        return judge(facts_of(self.boot))

    def status(self) -> dict[str, Any]:
        """The whole of /status.json."""
        return status(self.boot)
