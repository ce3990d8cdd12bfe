"""Where vLLM's boot stands, by what it printed last, and what to look at when nothing moves any more. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """One stretch of the boot; `look_at` is said when it stalls.

    cold, warm  the share of STALL_S that it may stand still: a disk that gives nothing for minutes is broken, while
                one kernel may compile for long. With warm caches on all boxes there is little to compile.
    """

    name: str
    mark: re.Pattern[str]
    look_at: str
    cold: float = 1.0
    warm: float = 1.0


def _phase(name: str, mark: str, look_at: str, cold: float = 1.0, warm: float = 1.0) -> Phase:
    return Phase(name, re.compile(mark, re.IGNORECASE), look_at, cold, warm)


PHASES: tuple[Phase, ...] = (
    _phase(
        "loading weights",
        r"loading (safetensors|weights)|model loading|shards:",
        "disk reads (iostat), page cache",
        0.5,
        0.5,
    ),
    _phase("warming up", r"warm(ing)?.?up|profil|KV cache size|available KV", "GPU power and stacks.txt of every rank"),
    _phase("compiling", r"torch\.compile|compil|inductor|jit|ninja", "MAX_JOBS, free memory, /cache", 1.0, 0.5),
    _phase("autotuning", r"autotun", "AUTOTUNE_CACHE=fresh; all ranks must tune together"),
    _phase("capturing graphs", r"captur", "GPU power; CUDA_GRAPHS=0 as a trial", 1.0, 0.5),
    _phase("starting the API", r"application startup|api server|uvicorn", "the head's vllm.log"),
)
FIRST = Phase(
    "meeting the other ranks", re.compile(""), "the rails and NCCL_SOCKET_IFNAME: does every box reach the head?"
)


def phase(lines: Sequence[str]) -> Phase:
    """The phase that the youngest telling line belongs to."""
    for line in reversed(lines):
        for one in PHASES:
            if one.mark.search(line):
                return one
    return FIRST
