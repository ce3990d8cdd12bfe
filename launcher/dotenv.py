"""Read compose/.env the way Docker Compose does (tried against Compose 2.26): judged is what Compose will see.

Pure. `NAME=text # comment`, `export NAME: text`, 'literal', "with \\n, $NAME and ${NAME:-default}"; quoted text
may go over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.refusal import Refusal

_KEY = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<key>[^=:\n]*?)[ \t]*(?:(?P<sign>[=:])[ \t]*|$)", re.MULTILINE)
_PLAIN = re.compile(r"[^\n]*")
_QUOTED = {"'": re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL), '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)}
_ESCAPES = {"$": "$$", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(
    rf"\$(?:(?P<escaped>\$)|\{{(?P<braced>{_NAME})(?:(?P<rule>:?[-+])(?P<other>[^}}]*))?\}}|(?P<named>{_NAME})|(?P<open>\{{))"
)


@dataclass(frozen=True)
class Entry:
    """NAME=value of one line (the first, where it goes over several): `raw` as written after the sign."""

    line: int
    name: str
    raw: str
    value: str


def parse(text: str, shell: Mapping[str, str], place: str = "compose/.env") -> dict[str, str]:
    """Name to value; of two lines the last counts. See `entries`."""
    return {entry.name: entry.value for entry in entries(text, shell, place)}


def entries(text: str, shell: Mapping[str, str], place: str = "compose/.env") -> list[Entry]:
    """What each line sets. `shell` is looked at for $NAME before the file's own lines, as Compose does.

    Raises Refusal with the line number for what Compose would refuse.
    """
    made: list[Entry] = []
    values: dict[str, str] = {}
    at = 0
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        if text[at] in " \t\n" or text[at] == "#":
            at = _skip(text, at)
            continue
        found = _KEY.match(text, at)
        key = found.group("key") if found else ""
        if found is None or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", key):
            shown = key.split()[0] if key.split() else "nothing before the ="
            raise Refusal(f"{place}, line {line}", shown, "NAME=value", f"Correct line {line} of {place}.")
        if not found.group("sign"):  # a name alone: the shell's value, if any
            at = found.end()
            continue
        values[key], at = _value(text, found.end(), {**values, **shell}, f"{place}, line {line}")
        made.append(Entry(line, key, text[found.end() : at], values[key]))
    return made


def _skip(text: str, at: int) -> int:
    """Past white space, or past a comment line."""
    if text[at] != "#":
        return at + 1
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _value(text: str, at: int, known: Mapping[str, str], place: str) -> tuple[str, int]:
    quote = text[at : at + 1]
    if quote in _QUOTED and quote:
        found = _QUOTED[quote].match(text, at)
        if found is None:
            raise Refusal(place, f"a {quote} that is not closed", "its closing quote", f"Correct {place}.")
        raw = found.group(1)
        return (raw.replace("\\'", "'") if quote == "'" else _expand(_unescape(raw), known, place)), found.end()
    plain = _PLAIN.match(text, at)
    raw = plain.group(0) if plain else ""
    kept = raw.strip().split(" #", 1)[0].strip()
    return _expand(kept, known, place), at + len(raw)


def _unescape(raw: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group(0)), raw, flags=re.DOTALL)


def _expand(raw: str, known: Mapping[str, str], place: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found.group("escaped"):
            return "$"
        if found.group("open"):
            raise Refusal(place, "${ without a name and a }", "${NAME}, or $$ for a dollar", f"Correct {place}.")
        value = known.get(found.group("braced") or found.group("named"), None)
        rule, other = found.group("rule"), found.group("other") or ""
        present = value is not None if rule in ("-", "+") else bool(value)
        if rule in ("-", ":-"):
            return (value or "") if present else other
        if rule in ("+", ":+"):
            return other if present else ""
        return value or ""

    return _VARIABLE.sub(replaced, raw)
