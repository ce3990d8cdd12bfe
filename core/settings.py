"""From an environment to typed settings, each with the place its value came from.

Empty means unset. A bad value is collected, not raised at once: the user sees all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.knob import Knob
from core.refusal import Refusal, Refusals

Source = Literal["default", ".env", "shell", "overlay", "environment", "derived", "elected"]


@dataclass(frozen=True)
class Setting:
    """One knob with its value: `text` as written (empty when unset and without default)."""

    knob: Knob
    text: str
    value: Any
    source: Source

    @property
    def shown(self) -> str:
        """The value as people may see it."""
        return self.knob.show(self.text)


@dataclass(frozen=True)
class Settings:
    """All knobs of the registry with values; an unset knob without default has value None."""

    table: Mapping[str, Setting] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.table[name].value

    def is_set(self, name: str) -> bool:
        """True when somebody chose the value: it did not come from the default."""
        return self.table[name].source != "default"

    def text(self, name: str) -> str:
        """The value as written, empty when unset."""
        return self.table[name].text

    def flag(self, name: str) -> bool:
        """A `flag` knob's value."""
        return bool(self.table[name].value)

    def number(self, name: str) -> float:
        """A numeric knob's value; the knob must have a default or be set."""
        return float(self.table[name].value)

    def integer(self, name: str) -> int:
        """A whole-number knob's value; the knob must have a default or be set."""
        return int(self.table[name].value)

    def of_scope(self, scope: str) -> dict[str, str]:
        """Name to text of every set, non-secret knob of one scope (what boxes compare for `group`)."""
        return {
            name: setting.text
            for name, setting in sorted(self.table.items())
            if setting.knob.scope == scope and setting.text and not setting.knob.secret
        }


def resolve(
    registry: Mapping[str, Knob], environ: Mapping[str, str], sources: Mapping[str, Source] | None = None
) -> Settings:
    """Typed settings of `environ`. `sources` names where a variable came from (the launcher knows).

    Raises Refusals with every bad value at once.
    """
    settings, refusals = lenient(registry, environ, sources)
    if refusals:
        raise Refusals(refusals)
    return settings


def lenient(
    registry: Mapping[str, Knob], environ: Mapping[str, str], sources: Mapping[str, Source] | None = None
) -> tuple[Settings, tuple[Refusal, ...]]:
    """All settings, a bad one at its default, and the refusals: a box must be able to say what it refuses."""
    table: dict[str, Setting] = {}
    refusals: list[Refusal] = []
    for name, knob in registry.items():
        text = environ.get(name, "")
        source: Source = (sources or {}).get(name, "environment") if text else "default"
        text = text or (knob.default or "")
        try:
            table[name] = Setting(knob, text, knob.parse(text) if text else None, source)
        except Refusal as refusal:
            refusals.append(refusal)
            text = knob.default or ""
            table[name] = Setting(knob, text, knob.parse(text) if text else None, "default")
    return Settings(table), tuple(refusals)
