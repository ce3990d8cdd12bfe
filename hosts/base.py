"""What every kind of host can do: run a command there. Local, a lab box, ssh and docker have this face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Done:
    """A command that ended: exit status (negative: ended by that signal), what it wrote."""

    status: int
    out: str
    err: str


class Host(Protocol):
    """One place where commands run."""

    @property
    def name(self) -> str:
        """How people call it."""

    def argv(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """The local command line that runs `command` there: a value that a test can compare."""

    def run(
        self,
        command: Sequence[str],
        *,
        deadline_s: float,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Done:
        """Run to the end. Past `deadline_s` seconds it is killed and a Refusal raised."""
