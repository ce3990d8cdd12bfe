"""`size(...)`: every planned number of a group, from facts and knobs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import model as facts
from core.plan import Profile, Value
from core.refusal import Refusal, Refusals
from core.row import Row
from core.settings import Settings
from core.units import GIB, show_size
from entrypoint.knobs import ranks
from entrypoint.serve.speculation import DEFAULT_TOKENS
from entrypoint.sizing import checks, fit, lab, padding, table
from entrypoint.sizing.budget import ROLES, Budget
from entrypoint.sizing.geometry import Pool, effective_block
from entrypoint.sizing.knobs import GPU_CEILING
from entrypoint.sizing.rows import rows_of

# What one box shows as MemTotal, for a plan made away from the boxes (reported).
GB10_MEMORY = round(121.6 * GIB)


@dataclass(frozen=True)
class BoxMemory:
    """What sizing must know of a box: its name and /proc/meminfo's MemTotal and MemAvailable, bytes."""

    name: str
    total_bytes: int
    available_bytes: int = 0


@dataclass(frozen=True)
class Sizing:
    """The planned numbers and where they come from.

    values   by knob name; these enter the group plan
    rows     what is to be said about them
    block    effective tokens per block; 0 in the lab
    pool     the predicted KV pool of a rank
    budgets  head and worker on the smallest box; empty in the lab
    """

    tp: int
    values: dict[str, Value]
    rows: tuple[Row, ...] = ()
    block: int = 0
    pool: Pool | None = None
    budgets: tuple[Budget, ...] = ()


def size(
    boxes: Sequence[BoxMemory], settings: Settings, overlays: Sequence[str] = (), profile: Profile = "gb10"
) -> Sizing:
    """Every number of the group plan that follows from memory, model and knobs.

    `boxes` are all members; the smallest decides; none at all stands for GB10 boxes. Raises Refusal or Refusals
    for what cannot be served, each with the largest value that would fit.
    """
    return _lab(settings, overlays) if profile == "lab-cpu" else _gb10(boxes, settings, overlays)


class _Reader:
    """Knobs by name, with a default for what this kit does not declare or the user left unset."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default`."""
        known = name in self.settings.table and self.settings[name] is not None
        return self.settings[name] if known else default

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of `names` that somebody set, with their values."""
        table = self.settings.table
        return {name: self.settings[name] for name in names if name in table and self.settings.is_set(name)}

    def value(self, name: str, derived: Any, why: str) -> Value:
        """What enters the plan: the user's value with its source, else the derived one."""
        if name in self.settings.table and self.settings.is_set(name):
            return Value(self.settings[name], self.settings.table[name].source, "set by you")
        return Value(derived, "derived", why)


def _lab(settings: Settings, overlays: Sequence[str]) -> Sizing:
    reader, tp = _Reader(settings), ranks(settings.text("TP"))
    values = {name: reader.value(name, derived, why) for name, (derived, why) in lab.VALUES.items()}
    padded = padding.OVERLAY in overlays
    pin, length = values["KV_CACHE_MEMORY"].value, values["MAX_MODEL_LEN"].value
    pool = lab.pool(facts.load(), tp, pin, length, padded=padded)
    row = Row("KV pool", "info", f"{pool.tokens:,} tokens predicted", "the engine's own line")
    return Sizing(tp, values, (row,), pool=pool)


def _gb10(boxes: Sequence[BoxMemory], settings: Settings, overlays: Sequence[str]) -> Sizing:
    reader, tp, model = _Reader(settings), ranks(settings.text("TP")), facts.load()
    if tp not in table.GB10:
        raise Refusal("TP", str(tp), "2, 3, 4, 6, RING3 or RING4", "Set TP in compose/.env on every box.")
    tight = bool(reader.get("ALLOW_TIGHT", False))
    refused, danger_rows = checks.dangers(reader.get, overlays, allowed=tight)
    if refused:
        raise Refusals(refused)

    total = min((box.total_bytes for box in boxes), default=GB10_MEMORY)
    fixed = _fixed(reader, tp, model, overlays)
    first, block = _start(reader, fixed, through=reader.get("PROFILE", "latency") == "throughput")
    checks.shape(first, fixed, block, reader.get)
    set_by_user = reader.chosen(*fit.AXES, "LONG_PREFILL_TOKEN_THRESHOLD", "DECODE_RESERVE_TOKENS")
    choice = fit.find(first, fixed, set_by_user, block, total, tight=tight)
    if choice is None:
        raise _does_not_fit(first, fixed, set_by_user, block, total)
    budgets = tuple(choice.budget(fixed, total, role) for role in ROLES)
    pool = choice.pool(fixed)
    rows = (*danger_rows, *rows_of(boxes, first, choice, fixed, block, pool, budgets), *_profile(reader, fixed, choice))
    return Sizing(tp, _values(reader, first, choice, fixed, block), rows, block, pool, budgets)


def _fixed(reader: _Reader, tp: int, model: facts.Model, overlays: Sequence[str]) -> fit.Fixed:
    method = reader.get("SPEC_METHOD", "dflash")
    if reader.get("MTP", False) and not reader.chosen("SPEC_METHOD"):
        method = "mtp"
    tokens = 0 if method == "none" else int(reader.get("SPEC_TOKENS") or DEFAULT_TOKENS[method])
    sizes = reader.get("CUDAGRAPH_CAPTURE_SIZES")
    graph_max = max(map(int, sizes.split(","))) if sizes else reader.get("CUDAGRAPH_MAX")
    dense: facts.Dense = next((dense for name, dense in table.DENSE if name in overlays), "bf16")
    return fit.Fixed(
        model=model,
        tp=tp,
        kv_bytes=1 if str(reader.get("KV_CACHE_DTYPE", "fp8_e4m3")).startswith("fp8") else 2,
        spec=method,
        spec_tokens=tokens,
        layout=reader.get("KV_LAYOUT", "packed"),
        recoverssm=table.RECOVERSSM in overlays,
        drafter_pool=any(name in table.DRAFTER_POOL for name in overlays),
        graphs=bool(reader.get("CUDA_GRAPHS", True)),
        graph_max=graph_max,
        parts=facts.weights(model, tp, method, dense=dense),
    )


def _start(reader: _Reader, fixed: fit.Fixed, *, through: bool) -> tuple[fit.Choice, int]:
    """The values to start from (tuned, or as set), and the effective block; `through` is the throughput profile."""
    tuned = table.GB10[fixed.tp]
    seqs = tuned.seqs if fixed.recoverssm else tuned.seqs_pool if fixed.drafter_pool else tuned.seqs_stock
    pin = min(tuned.kv_bytes, table.THROUGHPUT_KV_BYTES) if through else tuned.kv_bytes
    requested = reader.get("BLOCK_SIZE", tuned.block)
    block = effective_block(fixed.model, fixed.tp, requested, fixed.spec_tokens, fixed.kv_bytes)
    batch = reader.get("MAX_NUM_BATCHED_TOKENS", tuned.batch_tokens)
    cap = max(1, round(table.ORIGINAL_PREFILL_CAP / block)) * block * (table.THROUGHPUT_PREFILL if through else 1)
    reserve = reader.get("DECODE_RESERVE_TOKENS")
    if reserve is not None:
        cap = max(1, (batch - reserve) // block) * block
    cap = reader.get("LONG_PREFILL_TOKEN_THRESHOLD", min(cap, max(block, batch // block * block)))
    choice = fit.Choice(
        pin=reader.get("KV_CACHE_MEMORY", pin),
        max_len=reader.get("MAX_MODEL_LEN", tuned.max_len),
        seqs=reader.get("MAX_NUM_SEQS", seqs * (table.THROUGHPUT_SEQS if through else 1)),
        batch=batch,
        requested_block=requested,
        cap=cap,
    )
    return choice, block


def _profile(reader: _Reader, fixed: fit.Fixed, choice: fit.Choice) -> tuple[Row, ...]:
    """What the throughput profile costs beside the latency profile."""
    if reader.get("PROFILE", "latency") != "throughput":
        return ()
    latency, _ = _start(reader, fixed, through=False)
    longer = choice.cap / latency.cap
    seen = f"throughput: {choice.seqs} at once (latency {latency.seqs}), pool {show_size(choice.pin)} "
    seen += f"({show_size(latency.pin)}), one prompt's share {choice.cap} ({latency.cap})"
    costs = ["each stream is slower while so many run"]
    if longer > 1:
        costs.append(f"a short request may wait {longer:g} x as long behind a long prompt")
    if choice.pin < latency.pin:
        costs.append("fewer tokens stay cached")
    return (Row("PROFILE", "info", seen, f"costs: {', '.join(costs)}"),)


def _values(reader: _Reader, first: fit.Choice, choice: fit.Choice, fixed: fit.Fixed, block: int) -> dict[str, Value]:
    tuned = table.GB10[fixed.tp]

    def why(field: str) -> str:
        lowered = getattr(first, field) != getattr(choice, field)
        return f"lowered from {getattr(first, field)} to fit" if lowered else f"reported to serve at TP={fixed.tp}"

    cap = f"{choice.cap // block} x the effective block of {block}"
    values = {
        "KV_CACHE_MEMORY": reader.value("KV_CACHE_MEMORY", choice.pin, why("pin")),
        "MAX_MODEL_LEN": reader.value("MAX_MODEL_LEN", choice.max_len, why("max_len")),
        "MAX_NUM_SEQS": reader.value("MAX_NUM_SEQS", choice.seqs, why("seqs")),
        "MAX_NUM_BATCHED_TOKENS": reader.value("MAX_NUM_BATCHED_TOKENS", choice.batch, why("batch")),
        "BLOCK_SIZE": reader.value(
            "BLOCK_SIZE",
            choice.requested_block,
            f"vLLM lifts it to {block}" if block != choice.requested_block else "effective as it is: a KDA state fits",
        ),
        "LONG_PREFILL_TOKEN_THRESHOLD": reader.value("LONG_PREFILL_TOKEN_THRESHOLD", choice.cap, cap),
        "GPU_MEM_UTIL": reader.value("GPU_MEM_UTIL", GPU_CEILING, "a ceiling only: the pool is pinned"),
        "CUDA_GRAPHS": reader.value("CUDA_GRAPHS", True, "faster decode"),
        "CUDAGRAPH_MAX": reader.value(
            "CUDAGRAPH_MAX",
            choice.graph_tokens(fixed) or None,
            f"min({table.GRAPH_CEILING}, {choice.seqs} x (1 + {fixed.spec_tokens}))",
        ),
        "VLLM_ADAPTIVE_K_MODEL": reader.value(
            "VLLM_ADAPTIVE_K_MODEL",
            tuned.adaptive if fixed.recoverssm else tuned.adaptive_stock,
            f"reported for TP={fixed.tp} {'with' if fixed.recoverssm else 'without'} RecoverSSM",
        ),
    }
    for name in ("CUDAGRAPH_MODE", "CUDAGRAPH_CAPTURE_SIZES", "DECODE_RESERVE_TOKENS"):
        if reader.get(name) is not None:
            values[name] = reader.value(name, None, "")
    return {name: value for name, value in values.items() if value.value is not None}


def _does_not_fit(
    first: fit.Choice, fixed: fit.Fixed, set_by_user: Mapping[str, Any], block: int, total: int
) -> Refusal:
    short = -first.budget(fixed, total, "head").left
    lift = checks.TIGHT
    if short > 0:
        by = f"{show_size(short)} more than the smallest box has"
    elif first.holds_one(fixed):
        by = f"reported: {first.lost(fixed, total)}"
    else:
        by, lift = "more than the KV pool holds", "or give the pool more memory"
    for knob, axis in fit.AXES.items():
        if knob not in set_by_user:
            continue
        value = fit.largest(knob, first, fixed, set_by_user, block, total)
        if value is not None:
            seen = f"{axis.show(set_by_user[knob])}, {by}"
            tuned = getattr(table.GB10[fixed.tp], axis.tuned) if axis.tuned else value
            served = f"; {axis.show(tuned)} is reported to serve" if tuned < value else ""
            return Refusal(knob, seen, f"at most {axis.show(value)}{served}", f"Set {knob}={value}, {lift}.")
    if "KV_CACHE_MEMORY" in set_by_user and short <= 0:
        least = fit.smallest_pin(first, fixed, set_by_user)
        seen = f"{show_size(first.pin)}, which holds no request of {first.max_len} tokens"
        cure = f"Set KV_CACHE_MEMORY={least} or leave it unset."
        return Refusal("KV_CACHE_MEMORY", seen, f"at least {least} ({show_size(least)})", cure)
    names = [name for name in fit.AXES if name in set_by_user]
    if names:
        seen = ", ".join(f"{name}={set_by_user[name]}" for name in names)
        return Refusal(" with ".join(names), f"{seen}: {by}", "values that fit together", "Leave them unset.")
    return Refusal(
        "memory of the smallest box",
        show_size(total),
        f"{show_size(total + max(short, 0))} for TP={fixed.tp} as planned",
        "Use more boxes (a larger TP), end what else runs there, or set ALLOW_TIGHT=1.",
    )
