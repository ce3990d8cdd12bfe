"""What sizing says about its own numbers: the pool, what is left, what was lowered and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from core.row import Level, Row
from core.units import GIB, show_size
from entrypoint.sizing import table
from entrypoint.sizing.budget import Budget, coarse_rule
from entrypoint.sizing.fit import Choice, Fixed
from entrypoint.sizing.geometry import Pool

LAYOUTS = {
    "packed": "packed layout of vLLM 0.32: a prediction only, no boot on it was seen",
    "split": "layout of vLLM 0.31",
}
_POOL_LINE = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")


class Memory(Protocol):
    """What the rows read of a box."""

    @property
    def name(self) -> str:
        """The box's name."""

    @property
    def total_bytes(self) -> int:
        """MemTotal."""

    @property
    def available_bytes(self) -> int:
        """MemAvailable, 0 where it was not read."""


def millions(tokens: int) -> str:
    """`4.40M`, or the plain number below a million."""
    return f"{tokens / 1e6:.2f}M" if tokens >= 1_000_000 else f"{tokens:,}"


def rows_of(
    boxes: Sequence[Memory],
    first: Choice,
    choice: Choice,
    fixed: Fixed,
    block: int,
    pool: Pool,
    budgets: Sequence[Budget],
) -> tuple[Row, ...]:
    """Rows of one sizing, in the order in which they were decided."""
    rows = [Row("KV pool", "info", f"{millions(pool.tokens)} tokens predicted ({LAYOUTS[fixed.layout]})")]
    rows += _memory(choice, fixed, budgets)
    rows += _lowered(first, choice)
    rows += _prefill(choice, block)
    rows += _states(choice, pool)
    rows += _boxes(boxes, budgets)
    return tuple(rows)


def compare_pool(predicted: Pool, line: str) -> Row | None:
    """A row on the engine's own `KV cache size` line beside the prediction; None when `line` is another one."""
    match = _POOL_LINE.search(line)
    if match is None:
        return None
    seen = int(match.group(1).replace(",", ""))
    miss = seen / predicted.tokens - 1 if predicted.tokens else 1.0
    level: Level = "ok" if abs(miss) <= 0.05 else "WARN"
    cure = (
        "" if level == "ok" else "the base lays out its pages otherwise: see KV_LAYOUT, and tell us the engine's line"
    )
    return Row("KV pool", level, f"{seen:,} tokens", f"{predicted.tokens:,} predicted ({miss:+.1%})", cure)


def with_engine_line(rows: Sequence[Row], predicted: Pool | None, line: str) -> tuple[Row, ...] | None:
    """`rows` with the predicted pool's row replaced by the comparison, when `line` is the engine's; else None."""
    found = compare_pool(predicted, line) if predicted is not None else None
    if found is None:
        return None
    return (*(row for row in rows if row.name != found.name), found)


def _memory(choice: Choice, fixed: Fixed, budgets: Sequence[Budget]) -> list[Row]:
    left = ", ".join(f"{budget.role} {show_size(budget.left)}" for budget in budgets)
    expected = "0 or more left over on every box"
    total = budgets[0].total
    rows = []
    if choice.lost(fixed, total):
        cure = "lower it again; ALLOW_TIGHT=1 let this pass"
        rows.append(
            Row("too tight", "WARN", f"as large as a set reported to fail: {choice.lost(fixed, total)}", cure=cure)
        )
    if min(budget.left for budget in budgets) < 0:
        cure = "lower KV_CACHE_MEMORY; ALLOW_TIGHT=1 let this pass, and the box may hang without ssh"
        rows.append(Row("memory", "WARN", f"too tight: {left}", expected, cure))
    else:
        rows.append(Row("memory", "ok", f"left over: {left}", expected))
    rule = coarse_rule(fixed.tp, choice.pin)
    if rule > total:
        seen = f"182/TP + pin + 30 = {rule / GIB:.0f} GiB, the box has {total / GIB:.1f}"
        rows.append(Row("rule of thumb", "info", seen, "the budget decides: the rule speaks up at TP=2, which serves"))
    return rows


def _lowered(first: Choice, choice: Choice) -> list[Row]:
    names = {
        "pin": "KV_CACHE_MEMORY", "max_len": "MAX_MODEL_LEN", "seqs": "MAX_NUM_SEQS",
        "batch": "MAX_NUM_BATCHED_TOKENS", "cap": "LONG_PREFILL_TOKEN_THRESHOLD",
    }  # fmt: skip
    changed = [field for field in names if getattr(first, field) != getattr(choice, field)]
    if not changed:
        return []
    seen = ", ".join(f"{names[field]} {getattr(choice, field)}" for field in changed)
    expected = ", ".join(f"{names[field]} {getattr(first, field)}" for field in changed)
    return [
        Row("lowered to fit", "WARN", seen, expected, "the smallest box has too little memory for the tuned values")
    ]


def _prefill(choice: Choice, block: int) -> list[Row]:
    name = "LONG_PREFILL_TOKEN_THRESHOLD"
    if choice.cap % block:
        expected = f"a multiple of the effective block, {block}"
        return [
            Row(
                name,
                "WARN",
                str(choice.cap),
                expected,
                f"else chunks alternate; set {max(1, choice.cap // block) * block}",
            )
        ]
    if choice.cap != table.ORIGINAL_PREFILL_CAP:
        seen = f"{choice.cap} ({choice.cap // block} x the effective block)"
        return [Row(name, "info", seen, f"the original takes {table.ORIGINAL_PREFILL_CAP} at every TP size")]
    return []


def _states(choice: Choice, pool: Pool) -> list[Row]:
    at_once = pool.blocks // (pool.state_blocks + 1)
    if at_once >= choice.seqs:
        return []
    seen = f"the pool holds the states of {at_once} requests at once"
    return [Row("MAX_NUM_SEQS", "info", seen, f"{choice.seqs} planned; the others wait or are preempted")]


def _boxes(boxes: Sequence[Memory], budgets: Sequence[Budget]) -> list[Row]:
    if not boxes:
        return [Row("boxes", "info", f"assumed: {show_size(budgets[0].total)} each", "as reported for GB10 boxes")]
    rows = []
    smallest = min(boxes, key=lambda box: box.total_bytes)
    if any(box.total_bytes > smallest.total_bytes + GIB for box in boxes):
        rows.append(Row("boxes", "info", f"{smallest.name} is the smallest: {show_size(smallest.total_bytes)}"))
    floor = sum(item.size for item in budgets[-1].items if item.name == "host floor")
    needed = budgets[-1].used - floor
    for box in boxes:
        if 0 < box.available_bytes < needed:
            seen = f"{box.name}: {show_size(box.available_bytes)} available now"
            cure = "end what else runs there (a desktop session, another container), or wait until memory is back"
            rows.append(Row("free memory", "WARN", seen, f"{show_size(needed)} for a rank", cure))
    return rows
