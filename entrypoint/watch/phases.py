"""Where vLLM's boot stands, by what it printed last, and what to look at when nothing moves any more. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """One stretch of the boot; `look_at` is said when it stalls."""

    name: str
    mark: re.Pattern[str]
    look_at: str


def _phase(name: str, mark: str, look_at: str) -> Phase:
    return Phase(name, re.compile(mark, re.IGNORECASE), look_at)


PHASES: tuple[Phase, ...] = (
    _phase(
        "loading weights", r"loading (safetensors|weights)|model loading|shards:", "disk reads (iostat), page cache"
    ),
    _phase("warming up", r"warm(ing)?.?up|profil|KV cache size|available KV", "GPU power and stacks.txt of every rank"),
    _phase("compiling", r"torch\.compile|compil|inductor|jit|ninja", "MAX_JOBS, free memory, /cache"),
    _phase("autotuning", r"autotun", "AUTOTUNE_CACHE=fresh; all ranks must tune together"),
    _phase("capturing graphs", r"captur", "GPU power; CUDA_GRAPHS=0 as a trial"),
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
