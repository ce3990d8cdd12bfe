"""What is odd in compose/.env although Compose takes it: nothing is refused, everything is said once. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from core.knob import Knob
from core.refusal import Refusal
from launcher.dotenv import Entry

# A value that needs no quotes in any reader of such a file.
_PLAIN = re.compile(r"[^\s#$'\"\\]*")


def remarks(entries: Sequence[Entry], knobs: Mapping[str, Knob], place: str = "compose/.env") -> tuple[str, ...]:
    """A line for each oddity, in the order of the file; values of secrets are not shown."""
    last = {entry.name: entry for entry in entries}
    said = []
    for entry in entries:
        if last[entry.name] is not entry:
            said += [f"{place}, line {entry.line}: {text}" for text in _twice(entry, last[entry.name], knobs)]
            continue
        for look in LOOKS:
            said += [f"{place}, line {entry.line}: {text}" for text in look(entry, knobs)]
    return tuple(said)


def _twice(entry: Entry, last: Entry, knobs: Mapping[str, Knob]) -> Iterator[str]:
    same = "the same" if entry.value == last.value else f"{_shown(entry, knobs)} here and {_shown(last, knobs)} there"
    yield f"{entry.name} is set again in line {last.line}, {same}: the last counts. Remove one of them"


def _quoted(entry: Entry, knobs: Mapping[str, Knob]) -> Iterator[str]:
    raw = entry.raw.strip()
    if raw[:1] in ("'", '"') and entry.value and _PLAIN.fullmatch(entry.value):
        yield f"the quotes around {entry.name} are not needed; some readers keep them. Write {entry.name}=..."
    elif raw[:1] not in ("'", '"') and entry.value and entry.value[-1] in "'\"" and not entry.value.startswith("{"):
        yield f"{entry.name} ends with a quote, which is part of the value. Remove it"


def _blanks(entry: Entry, knobs: Mapping[str, Knob]) -> Iterator[str]:
    if entry.value != entry.value.strip():
        yield f"{entry.name} has blanks at an end of its value, inside the quotes. Remove them"
    elif entry.raw != entry.raw.rstrip(" \t") and " #" not in entry.raw:
        yield f"blanks after the value of {entry.name}; Compose drops them, other readers do not. Remove them"


def _default(entry: Entry, knobs: Mapping[str, Knob]) -> Iterator[str]:
    knob = knobs.get(entry.name)
    if knob is None or knob.default is None or not entry.value:
        return
    try:
        same = knob.parse(entry.value) == knob.parse(knob.default)
    except Refusal:
        return  # told as a refusal
    if same:
        yield f"{entry.name} repeats the default. Remove it: a better default of a later version would be missed"


def _shown(entry: Entry, knobs: Mapping[str, Knob]) -> str:
    knob = knobs.get(entry.name)  # an unknown name may be a misspelt secret
    return entry.value or "nothing" if knob and not knob.secret else "a value"


LOOKS: tuple[Callable[[Entry, Mapping[str, Knob]], Iterator[str]], ...] = (_quoted, _blanks, _default)
