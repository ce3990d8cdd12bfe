"""`size(...)`: every planned number of a group, from facts and knobs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.plan import Profile, Value
from core.refusal import Refusal
from core.row import Row
from core.settings import Settings
from core.units import GIB
from entrypoint.sizing import table

TP_SIZES = (2, 3, 4, 6)


@dataclass(frozen=True)
class BoxMemory:
    """What sizing must know of a box: its name and /proc/meminfo's MemTotal and MemAvailable, bytes."""

    name: str
    total_bytes: int
    available_bytes: int = 0


@dataclass(frozen=True)
class Sizing:
    """The planned numbers (`values`, by knob name) and what is to be said about them (`rows`)."""

    tp: int
    values: dict[str, Value]
    rows: tuple[Row, ...] = ()


def tensor_parallel(settings: Settings) -> int:
    """The number of ranks that TP asks for; RING4 and RING3 are spellings of 4 and 3."""
    return int(str(settings["TP"]).upper().removeprefix("RING"))


def size(
    boxes: Sequence[BoxMemory], settings: Settings, overlays: Sequence[str] = (), profile: Profile = "gb10"
) -> Sizing:
    """Every number of the group plan that follows from memory, model and knobs.

    `boxes` are all members; the smallest decides. Raises Refusal or Refusals for what cannot be served.
    """
    return _lab(settings) if profile == "lab-cpu" else _gb10(settings, overlays)


def _setting(settings: Settings, name: str, default: Any = None) -> Any:
    return settings[name] if name in settings.table and settings[name] is not None else default


def _chosen(settings: Settings, derived: dict[str, tuple[Any, str]]) -> dict[str, Value]:
    values = {}
    for name, (value, why) in derived.items():
        if name in settings.table and settings.is_set(name):
            values[name] = Value(settings[name], settings.table[name].source, "set by you")
        elif value is not None:
            values[name] = Value(value, "derived", why)
    return values


def _lab(settings: Settings) -> Sizing:
    tiny = "the lab's tiny model on CPU"
    derived: dict[str, tuple[Any, str]] = {
        "KV_CACHE_MEMORY": (GIB, tiny),
        "MAX_MODEL_LEN": (1024, tiny),
        "MAX_NUM_SEQS": (8, tiny),
        "MAX_NUM_BATCHED_TOKENS": (1024, tiny),
        "GPU_MEM_UTIL": (0.2, "on CPU the share of host memory that start-up wants to see free"),
        "CUDA_GRAPHS": (False, "no GPU"),
    }
    return Sizing(tensor_parallel(settings), _chosen(settings, derived))


def _gb10(settings: Settings, overlays: Sequence[str]) -> Sizing:
    tp = tensor_parallel(settings)
    if tp not in table.GB10:
        raise Refusal("TP", str(tp), "2, 3, 4, 6, RING3 or RING4", "Set TP in compose/.env on every box.")
    tuned = table.GB10[tp]
    seqs = tuned.seqs if "recoverssm" in overlays else tuned.seqs_stock
    tokens = table.SPEC_TOKENS[_setting(settings, "SPEC_METHOD", "dflash")]
    seqs = _setting(settings, "MAX_NUM_SEQS", seqs)
    reported = f"reported to serve at TP={tp}"
    derived: dict[str, tuple[Any, str]] = {
        "KV_CACHE_MEMORY": (tuned.kv_bytes, reported),
        "MAX_MODEL_LEN": (tuned.max_len, reported),
        "MAX_NUM_SEQS": (seqs, reported),
        "MAX_NUM_BATCHED_TOKENS": (tuned.batch_tokens, reported),
        "BLOCK_SIZE": (tuned.block, reported),
        "LONG_PREFILL_TOKEN_THRESHOLD": (table.ORIGINAL_PREFILL_CAP, reported),
        "GPU_MEM_UTIL": (0.88, "a ceiling; the pool is pinned"),
        "CUDA_GRAPHS": (True, "faster decode"),
        "CUDAGRAPH_MAX": (min(table.GRAPH_CEILING, seqs * (1 + tokens)), "sequences x (1 + drafted tokens)"),
    }
    return Sizing(tp, _chosen(settings, derived))
