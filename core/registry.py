"""Every knob of the kit, collected from the rooms by a fixed list."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from core.knob import Knob, by_name

# A room that reads knobs has a `knobs.py` with `KNOBS: tuple[Knob, ...]`; order is KNOBS.md's order.
ROOMS = (
    "entrypoint",
    "entrypoint.discovery",
    "entrypoint.serve",
    "entrypoint.sizing",
    "entrypoint.status",
    "entrypoint.watch",
    "group",
    "preflight",
    "fabric",
    "launcher",
    "image",
    "lab",
)


@cache
def knobs_by_room() -> dict[str, tuple[Knob, ...]]:
    """Room name to its knobs, in the order of ROOMS."""
    return {room: import_module(f"{room}.knobs").KNOBS for room in ROOMS}


@cache
def registry() -> dict[str, Knob]:
    """Name to knob over all rooms."""
    return dict(by_name(tuple(knob for knobs in knobs_by_room().values() for knob in knobs)))
