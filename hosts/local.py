"""This machine, or any place that a command in front (`nsenter ...`) leads to."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.refusal import Refusal
from core.units import show_seconds
from hosts.base import Done


@dataclass(frozen=True)
class Local:
    """Runs commands here; `front` is put before each, e.g. to enter a namespace."""

    name: str = "localhost"
    front: tuple[str, ...] = ()

    def argv(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """`front`, then `env NAME=VALUE...` where an environment is given, then the command."""
        extra = ["env", *(f"{name}={value}" for name, value in sorted(environment.items()))] if environment else []
        return [*self.front, *extra, *command]

    def run(
        self,
        command: Sequence[str],
        *,
        deadline_s: float,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Done:
        """Run to the end; Refusal when it is not found or takes longer than `deadline_s` seconds."""
        argv = self.argv(command, environment)
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, timeout=deadline_s, check=False)
        except FileNotFoundError:
            raise Refusal(f"command on {self.name}", argv[0], "an installed program", f"Install {argv[0]}.") from None
        except subprocess.TimeoutExpired:
            raise Refusal(
                f"command on {self.name}",
                f"{' '.join(command)} still running after {show_seconds(deadline_s)}",
                "an end before its deadline",
                "Run it by hand to see where it stands.",
            ) from None
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
