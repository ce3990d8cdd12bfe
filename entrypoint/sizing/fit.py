"""Find the numbers that fit: the tuned ones when memory allows, else the nearest smaller ones, never larger.

Candidates come in one fixed order, each no larger than the one before in every value, and what a candidate
needs does not depend on the boxes: so more memory never gives less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from core.units import GIB, MIB, show_size
from entrypoint.sizing import table
from entrypoint.sizing.budget import Budget, Role, budget
from entrypoint.sizing.geometry import Layout, Pool, Shape, effective_block, pin_for, pool
from model import Model, Part

PIN_STEP = 256 * MIB
SMALLEST_LEN = 8192


@dataclass(frozen=True)
class Fixed:
    """What does not vary in the search: engine settings that shape the geometry."""

    model: Model
    tp: int
    kv_bytes: int
    spec: str
    spec_tokens: int
    layout: Layout
    recoverssm: bool
    drafter_pool: bool
    graphs: bool
    graph_max: int | None
    parts: tuple[Part, ...]  # the weights of a rank


@dataclass(frozen=True)
class Choice:
    """One set of numbers: sizes in bytes, the rest in tokens or requests; `cap` is a prompt's share of a step."""

    pin: int
    max_len: int
    seqs: int
    batch: int
    requested_block: int
    cap: int

    def shape(self, fixed: Fixed) -> Shape:
        """The geometry that these numbers give."""
        block = effective_block(fixed.model, fixed.tp, self.requested_block, fixed.spec_tokens, fixed.kv_bytes)
        return Shape(
            fixed.tp, block, self.max_len, self.seqs, self.batch, fixed.kv_bytes, fixed.spec, fixed.spec_tokens,
            fixed.layout, fixed.recoverssm, fixed.drafter_pool,
        )  # fmt: skip

    def pool(self, fixed: Fixed) -> Pool:
        """The KV pool that these numbers give."""
        return pool(fixed.model, self.shape(fixed), self.pin)

    def graph_tokens(self, fixed: Fixed) -> int:
        """The largest batch captured as a CUDA graph; 0 without graphs."""
        if not fixed.graphs:
            return 0
        return fixed.graph_max or min(table.GRAPH_CEILING, self.seqs * (1 + fixed.spec_tokens))

    def budget(self, fixed: Fixed, total: int, role: Role) -> Budget:
        """The budget of one rank on a box of `total` bytes."""
        graph = self.graph_tokens(fixed)
        shape, pool = self.shape(fixed), self.pool(fixed)
        return budget(fixed.model, shape, pool, self.pin, self.cap, graph, total, role, fixed.parts)

    def holds_one(self, fixed: Fixed) -> bool:
        """True when the pool holds one request of the longest length; vLLM refuses to start otherwise."""
        found = self.pool(fixed)
        return found.blocks >= found.per_request

    def lost(self, fixed: Fixed, total: int) -> str:
        """The report of a box lost with no more than this, or nothing."""
        for case in table.LOST if total < table.LOST_ON else ():
            if case.tp == fixed.tp and self.pin >= case.kv_bytes and self.batch >= case.batch_tokens:
                return case.what
        return ""

    def fits(self, fixed: Fixed, total: int) -> bool:
        """True when the head's budget (the larger one) closes, no report speaks against it, and one request fits."""
        shape = self.shape(fixed)
        step_holds = self.batch >= max(shape.block, self.seqs * (1 + fixed.spec_tokens))
        closes = self.holds_one(fixed) and self.budget(fixed, total, "head").left >= 0
        return step_holds and closes and not self.lost(fixed, total)


def asks_more(first: Choice, fixed: Fixed, set_by_user: Mapping[str, object]) -> bool:
    """True when a knob is set above its tuned value: then only the pool gives way, never another promise."""
    tuned = table.GB10[fixed.tp]
    limits = {
        "KV_CACHE_MEMORY": tuned.kv_bytes, "MAX_MODEL_LEN": tuned.max_len,
        "MAX_NUM_SEQS": tuned.seqs, "MAX_NUM_BATCHED_TOKENS": tuned.batch_tokens,
    }  # fmt: skip
    return any(getattr(first, AXES[knob].field) > limit for knob, limit in limits.items() if knob in set_by_user)


def candidates(first: Choice, fixed: Fixed, set_by_user: Mapping[str, object], block: int) -> Iterator[Choice]:
    """`first`, then ever smaller ones; what the user set stays as it is."""
    yield first
    base = first
    if "LONG_PREFILL_TOKEN_THRESHOLD" not in set_by_user and base.cap > block:
        base = replace(base, cap=block)
        yield base
    may_pin = "KV_CACHE_MEMORY" not in set_by_user
    may_len = "MAX_MODEL_LEN" not in set_by_user
    pin = base.pin
    least = pin_for(fixed.model, base.shape(fixed))
    while may_pin and pin - PIN_STEP >= least:
        pin -= PIN_STEP
        yield replace(base, pin=pin)
    if asks_more(first, fixed, set_by_user):
        return
    length = base.max_len
    while may_len and length > SMALLEST_LEN:
        length = max(SMALLEST_LEN, length // 2)
        shorter = replace(base, max_len=length, pin=pin)
        if may_pin:
            needed = pin_for(fixed.model, shorter.shape(fixed))
            pin = min(pin, -(-needed // PIN_STEP) * PIN_STEP)
            shorter = replace(shorter, pin=pin)
        yield shorter
    smallest = replace(base, max_len=length, pin=pin)
    for batch in (4096, 2048):
        if "MAX_NUM_BATCHED_TOKENS" not in set_by_user and batch < smallest.batch and batch >= block:
            smallest = replace(smallest, batch=batch, cap=min(smallest.cap, batch))
            yield smallest
    if "MAX_NUM_SEQS" not in set_by_user:
        while smallest.seqs > 1:
            smallest = replace(smallest, seqs=smallest.seqs // 2)
            yield smallest


@dataclass(frozen=True)
class Axis:
    """A knob that can be lowered until things fit: its field of Choice, its step and how to write a value.

    `tuned` is its field of table.Tuned, where that does not depend on what is mounted.
    """

    field: str
    step: int
    size: bool = False
    tuned: str = ""

    def show(self, value: int) -> str:
        """The value as one would set it, with the readable size beside bytes."""
        return f"{value} ({show_size(value)})" if self.size else str(value)


AXES: Mapping[str, Axis] = {
    "KV_CACHE_MEMORY": Axis("pin", PIN_STEP, size=True, tuned="kv_bytes"),
    "MAX_NUM_BATCHED_TOKENS": Axis("batch", 256, tuned="batch_tokens"),
    "MAX_MODEL_LEN": Axis("max_len", 1024, tuned="max_len"),
    "MAX_NUM_SEQS": Axis("seqs", 1),
}


def find(
    first: Choice, fixed: Fixed, set_by_user: Mapping[str, object], block: int, total: int, *, tight: bool = False
) -> Choice | None:
    """The first candidate that fits boxes of `total` bytes, or None; `tight` lets the budget go below zero."""
    for choice in candidates(first, fixed, set_by_user, block):
        if choice.holds_one(fixed) if tight else choice.fits(fixed, total):
            return choice
    return None


def largest(
    knob: str, first: Choice, fixed: Fixed, set_by_user: Mapping[str, object], block: int, total: int
) -> int | None:
    """The largest value of `knob` below the one set with which the rest, as set, fits; None where no value does."""
    axis = AXES[knob]

    def fits(steps: int) -> bool:
        value = steps * axis.step
        changed = replace(first, **{axis.field: value})
        changed = replace(changed, cap=min(changed.cap, changed.batch))
        return find(changed, fixed, set_by_user, block, total) is not None

    top = (getattr(first, axis.field) - 1) // axis.step
    if axis.field == "pin":  # a pin can be too small as well as too large: go down in quarters of a GiB
        return next((n * axis.step for n in range(min(top, 128 * GIB // axis.step), 0, -1) if fits(n)), None)
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * axis.step if low else None


def smallest_pin(first: Choice, fixed: Fixed, set_by_user: Mapping[str, object]) -> int:
    """The smallest pin, in whole steps, that holds one request as short as sizing may go."""
    small = replace(first, pin=0)
    if "MAX_MODEL_LEN" not in set_by_user and not asks_more(small, fixed, set_by_user):
        small = replace(small, max_len=SMALLEST_LEN)
    return -(-pin_for(fixed.model, small.shape(fixed)) // PIN_STEP) * PIN_STEP
