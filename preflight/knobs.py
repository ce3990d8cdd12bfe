"""The knobs that preflight reads."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob("PREFLIGHT", "flag", "1", "0 leaves the preflight table out; it never stops a boot by default.", scope="box"),
)
