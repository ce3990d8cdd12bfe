"""The knobs that group reads: the protocol's deadlines, ports and the place of what it keeps."""

from __future__ import annotations

from core.knob import Knob
from group.ports import parse_range


def _range(text: str) -> str | None:
    try:
        parse_range(text)
    except ValueError as error:
        return str(error)
    return None


def _second(value: float) -> str | None:
    """With less every look at the clock would be one too late: a group would never serve."""
    return None if value >= 1 else "1 second or more"


KNOBS: tuple[Knob, ...] = (
    Knob(
        "JOIN_S",
        "seconds",
        "60",
        "After a commit all boxes must have started vLLM within this time, else the generation is ended.",
        unit="s",
        check=_second,
    ),
    Knob(
        "LOST_S",
        "seconds",
        "30",
        "A box that was paused for longer than this stops its engine first and asks later.",
        unit="s",
        check=_second,
    ),
    Knob(
        "PORT_RANGE",
        "text",
        "20000-28191",
        "Ports for vLLM's rendezvous and the fabric check, below the ephemeral range; a new one for every generation.",
        check=_range,
    ),
    Knob(
        "STATE_DIR",
        "path",
        "/state",
        "Folder kept across restarts: epoch, retry counts.",
        scope="box",
    ),
)
