"""A user's mistake, told in one line: what was seen, what was expected, what cures it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(unsafe_hash=True)  # not frozen: contextlib sets __traceback__ on what passes through it
class Refusal(Exception):
    """Something the user set or lacks that must be cured before anything starts.

    `setting` names the knob or the thing ("TP", "port 8002"); `cure` is a command or a setting.
    """

    setting: str
    seen: str
    expected: str
    cure: str

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Itself, so that one and several are caught alike."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.setting}: seen {self.seen}; expected {self.expected}. {self.cure}"


class Refusals(Exception):
    """Several refusals found in one pass, so that a user cures them all at once."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        super().__init__("\n".join(str(refusal) for refusal in refusals))
        self.refusals = refusals
