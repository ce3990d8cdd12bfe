"""Which tensors of a checkpoint grow when heads, expert width or inner width are padded. Standard library only.

A rule names tensors by the end of their name, an axis, and the count of config.json that the axis is proportional
to. The padded length is the stored one times padded/original, so one rule serves rows per head, packed nibbles (two
numbers a byte) and block scales (one per 16 numbers). Padding always comes last: heads and columns keep their places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# config.json's key under which `./glm53 pad` records what it did.
MARK = "tp_pad_orig"
# count of config.json -> (original, padded)
Sizes = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Rule:
    """Tensors whose name matches `pattern` grow along `axis` (from the left) with the count `key`.

    `axis` None: the only axis whose length is the original count (A_log is stored as [H] or [1, 1, H, 1]).
    """

    pattern: re.Pattern[str]
    axis: int | None
    key: str


def _rule(pattern: str, axis: int | None, key: str) -> Rule:
    return Rule(re.compile(pattern), axis, key)


# Weights as they are, and NVFP4's packed bytes and block scales; its global and input scales are single numbers.
_WEIGHT = r"\.(weight|weight_packed|weight_scale)$"
_HEADS, _KDA, _EXPERT = "num_attention_heads", "linear_num_heads", "moe_intermediate_size"
TARGET: tuple[Rule, ...] = (
    _rule(r"\.self_attn\.(q_b_proj|kv_b_proj)\.weight$", 0, _HEADS),
    _rule(r"\.self_attn\.o_proj\.weight$", 1, _HEADS),
    _rule(r"\.self_attn\.(q_proj|k_proj|v_proj|b_proj|f_b_proj|g_b_proj)\.weight$", 0, _KDA),
    _rule(r"\.self_attn\.(q_conv1d|k_conv1d|v_conv1d)\.weight$", 0, _KDA),
    _rule(r"\.self_attn\.dt_bias$", 0, _KDA),
    _rule(r"\.self_attn\.A_log$", None, _KDA),
    _rule(r"\.mlp\.(experts\.\d+|shared_experts)\.(gate_proj|up_proj)" + _WEIGHT, 0, _EXPERT),
    _rule(r"\.mlp\.(experts\.\d+|shared_experts)\.down_proj" + _WEIGHT, 1, _EXPERT),
)
_QUERY, _KEY, _INNER = "num_attention_heads", "num_key_value_heads", "intermediate_size"
DENSE: tuple[Rule, ...] = (
    _rule(r"\.self_attn\.q_proj\.(weight|bias)$", 0, _QUERY),
    _rule(r"\.self_attn\.(k_proj|v_proj)\.(weight|bias)$", 0, _KEY),
    _rule(r"\.self_attn\.o_proj\.weight$", 1, _QUERY),
    _rule(r"\.mlp\.(gate_proj|up_proj)\.(weight|bias)$", 0, _INNER),
    _rule(r"\.mlp\.down_proj\.weight$", 1, _INNER),
)
# The indexer is replicated and the vision tower runs data-parallel: neither is padded.
_NEVER = re.compile(r"(\.indexer\.|(^|\.)visual\.|(^|\.)vision_)")


class DoesNotDivide(ValueError):
    """A tensor's stored length is no whole multiple of its count: the checkpoint is not what the rules expect."""


def padded_shape(name: str, shape: Sequence[int], sizes: Sizes, rules: Sequence[Rule]) -> tuple[int, ...]:
    """The shape of tensor `name` after padding; its own where no rule speaks of it. Raises DoesNotDivide."""
    if _NEVER.search(name):
        return tuple(shape)
    for rule in rules:
        if rule.key in sizes and rule.pattern.search(name):
            original, padded = sizes[rule.key]
            axis = _axis(rule, name, shape, original)
            length = shape[axis] * Fraction(padded, original)
            if length.denominator != 1 or (shape[axis] * Fraction(1, original)).numerator == 0:
                raise DoesNotDivide(f"{name}: axis {axis} of {list(shape)} does not follow {rule.key}={original}")
            return (*shape[:axis], int(length), *shape[axis + 1 :])
    return tuple(shape)


def _axis(rule: Rule, name: str, shape: Sequence[int], original: int) -> int:
    if rule.axis is not None:
        if rule.axis >= len(shape):
            raise DoesNotDivide(f"{name}: {list(shape)} has no axis {rule.axis}")
        return rule.axis
    axes = [axis for axis, length in enumerate(shape) if length == original]
    if len(axes) != 1:
        raise DoesNotDivide(f"{name}: no single axis of {list(shape)} is {rule.key}={original}")
    return axes[0]


def recorded(config: Any) -> dict[str, Any] | None:
    """The record of `./glm53 pad` in a config (a mapping, or an object with attributes), or None."""
    for holder in (config, _of(config, "text_config")):
        record = _of(holder, MARK)
        if isinstance(record, Mapping):
            return dict(record)
    return None


def _of(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def sizes_of(record: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The counts of a record, typed."""
    return {str(key): (int(pair[0]), int(pair[1])) for key, pair in record["sizes"].items()}
