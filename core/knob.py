"""A knob: one environment variable the kit reads, declared once, in the room that reads it.

From these declarations come KNOBS.md, the compose environment block, .env.example, the check of
compose/.env and of the shell, and the provenance the page shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.refusal import Refusal
from core.units import parse_size, show_size

Scope = Literal["group", "box", "launcher"]


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("a whole number of 1 or more")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("a finite number")
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise ValueError("seconds, 0 or more")
    return value


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ValueError("a port from 1 to 65535")
    return int(text)


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("a JSON object")
    return value


def share(value: float) -> str | None:
    """A `check` of a knob that holds a part of something."""
    return None if 0 < value <= 1 else "a share above 0 and up to 1"


HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip() for part in text.split(",") if part.strip())
    for host in hosts:
        name, _, port = host.partition(":")
        if not HOST.fullmatch(name) or (":" in host and not (port.isascii() and port.isdigit())):
            raise ValueError("a list host[:port],host[:port],...")
    return hosts


def _plain(kind: str, text: str) -> None:
    """Refuse what no log, path or argv can hold, and digits of other scripts, which Python would read as numbers."""
    if kind in ("integer", "count", "number", "seconds", "size", "port") and not text.isascii():
        raise ValueError("a number in the digits 0-9")
    if not all(character.isprintable() or (character in "\t\r\n" and kind in SEVERAL_LINES) for character in text):
        raise ValueError("printable characters only")


def _short(text: str) -> str:
    """As Python writes it, so that nothing unprintable is printed; the middle of a long one left out."""
    shown = ascii(text) if any("\ud800" <= character <= "\udfff" for character in text) else repr(text)
    return shown if len(shown) <= 200 else f"{shown[:100]}...{shown[-50:]} ({len(text)} characters)"


# What people write over several lines of a compose file.
SEVERAL_LINES = ("json", "text")
KINDS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "flag": _flag,
    "integer": _integer,
    "count": _count,
    "number": _number,
    "seconds": _seconds,
    "size": parse_size,
    "port": _port,
    "path": str,
    "json": _json,
    "hosts": _hosts,
    "choice": str,
}


@dataclass(frozen=True)
class Knob:
    """One environment variable of the kit.

    name      as in the environment, e.g. `KV_CACHE_MEMORY`
    kind      a key of KINDS; `choice` needs `choices`
    default   the text an unset variable stands for; None where the value is derived or elected
    unit      what a number counts: "bytes", "s", "tokens", "GB/s", "" where none
    why       one sentence: what it does and why one would set it
    measured  effect with place and date, or "reported ..." for a figure we did not measure
    scope     `group`: must be equal on all boxes and is compared; `box`: this box's own;
              `launcher`: read on the host only, never passed into the container
    secret    masked wherever it is shown
    check     further test of the parsed value; returns what is expected when it does not hold
    """

    name: str
    kind: str
    default: str | None
    why: str
    unit: str = ""
    measured: str = ""
    scope: Scope = "group"
    choices: tuple[str, ...] = ()
    secret: bool = False
    check: Callable[[Any], str | None] | None = None

    def parse(self, text: str) -> Any:
        """The typed value of `text`. Raises Refusal naming what is accepted."""
        try:
            _plain(self.kind, text)
            if self.kind == "choice" and text not in self.choices:
                raise ValueError("one of " + ", ".join(self.choices))
            value = KINDS[self.kind](text)
            complaint = self.check(value) if self.check else None
            if complaint:
                raise ValueError(complaint)
        except (ValueError, OverflowError, RecursionError) as error:
            if not isinstance(error, ValueError):
                error = ValueError("a value of a reasonable size")
            shown = "a value that is not shown" if self.secret else _short(text)
            raise Refusal(
                self.name, shown, str(error), f"Set {self.name} in compose/.env, or leave it unset."
            ) from None
        return value

    def show(self, text: str) -> str:
        """The text as people may see it: secrets masked, sizes both ways."""
        if self.secret and text:
            return "********"
        if self.kind == "size" and text:
            return f"{parse_size(text)} ({show_size(parse_size(text))})"
        return text


def by_name(knobs: tuple[Knob, ...]) -> Mapping[str, Knob]:
    """Name to knob; two declarations of one name are a defect of the kit."""
    table: dict[str, Knob] = {}
    for knob in knobs:
        if knob.name in table:
            raise AssertionError(f"knob {knob.name} is declared twice")
        table[knob.name] = knob
    return table
