"""Clocks that jump, for kits of the lab only: Python imports this first when PYTHONPATH names its folder.

GLM53_LAB_CLOCK names a file with two numbers, seconds added to the wall clock and to CLOCK_BOOTTIME; no file, no
jump. A machine has one of each clock, so a box of the lab cannot set its own. `monotonic` is left alone: a suspend
does not move it either.
"""

import os
import time

_file = os.environ.get("GLM53_LAB_CLOCK", "")
_real_time, _real_clock = time.time, time.clock_gettime


def _jumps() -> "tuple[float, float]":
    try:
        with open(_file) as text:  # noqa: PTH123 - pathlib would double what every start of the kit imports
            wall, boot = text.read().split()
            return float(wall), float(boot)
    except (OSError, ValueError):
        return 0.0, 0.0


def _time() -> float:
    return _real_time() + _jumps()[0]


def _clock_gettime(clock: int) -> float:
    return _real_clock(clock) + (_jumps()[1] if clock == time.CLOCK_BOOTTIME else 0.0)


if _file:
    time.time, time.clock_gettime = _time, _clock_gettime
