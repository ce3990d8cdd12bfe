"""The knobs that entrypoint/watch reads: when an engine counts as wedged, and how often a box may try again."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob(
        "WEDGE_S",
        "seconds",
        "180",
        "Requests in the engine, and for so long no token, step, KV growth or compiler: the generation is ended.",
        unit="s",
        measured="reported: deadlocks while serving after 35-55 min, found by nobody for minutes to hours",
        scope="box",
    ),
    Knob(
        "IDLE_CANARY_S",
        "seconds",
        "40",
        "An engine that had nothing to do for so long is asked for one token: only a token proves all ranks alive.",
        unit="s",
        scope="box",
    ),
    Knob(
        "STALL_S",
        "seconds",
        "900",
        "While vLLM starts: so long without log, read, memory or cache growth ends it; half if little compiles.",
        unit="s",
        measured="reported: boots that stop after KV allocation with a spinning core, for ever",
        scope="box",
    ),
    Knob(
        "RETRIES",
        "count",
        "5",
        "So many ends by the same cause in a row, then this box stays down and says what to look at.",
        measured="reported: 35 restarts leaked memory until ssh died",
        scope="box",
    ),
    Knob(
        "RETRY_RESET_S",
        "seconds",
        "1800",
        "Serving for so long forgets earlier ends.",
        unit="s",
        scope="box",
    ),
)
