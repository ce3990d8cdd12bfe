"""The knobs that entrypoint/status reads."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = ()
