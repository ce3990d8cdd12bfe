"""What a discovery provider is: it announces this box, gives hints of others, and says what it heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

STATIC = "PEERS"  # the one source of hints that a person wrote


@dataclass(frozen=True)
class Announcement:
    """What this box tells the LAN: where its page answers, and for which group."""

    group: str
    lan: str
    ifname: str
    port: int
    instance: str
    hostname: str


@dataclass(frozen=True)
class Hint:
    """Somebody may be at `host`:`port` (an address or a name). Worth nothing until verified over HTTP."""

    host: str
    port: int
    source: str


OnHint = Callable[[Hint, bool], None]  # (hint, True when it appeared / False when it was withdrawn)


class Provider(Protocol):
    """One way of finding boxes. `name` is what the page calls it."""

    name: str

    async def start(self, announcement: Announcement, on_hint: OnHint) -> None:
        """Begin announcing and listening. Raises OSError when the interface cannot do it."""

    async def stop(self) -> None:
        """Withdraw the announcement and free everything."""

    def report(self) -> tuple[str, ...]:
        """Lines for a person: what was announced and what was heard, per interface."""
