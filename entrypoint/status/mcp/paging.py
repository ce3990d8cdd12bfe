"""From a tool's result to its text: masked, finite, cut to a page, valid JSON whatever the items hold. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.mask import MASK, is_secret_name, mask
from entrypoint.status.mcp.tool import Result

# An answer is read by a model: what is longer costs it context. Bytes of UTF-8, the whole text.
LARGEST = 16 * 1024
LARGEST_ITEM = 4 * 1024
DEEPEST = 12
# Tried in turn until a value fits: the longest text, the longest list.
STEPS = ((LARGEST_ITEM, 1000), (1000, 100), (300, 30), (80, 8), (20, 3))


def page(result: Result, cursor: int, head: Mapping[str, Any], secrets: Sequence[str]) -> str:
    """`head`, what the result says of itself, as many items as fit, and `next` (null at the end).

    At most LARGEST bytes. At least one item is on every page but one beyond the end, so paging always ends.
    """
    about = cut({**head, **result.about}, secrets)
    of_file = result.ends is not None
    offset = 0 if of_file else min(cursor, len(result.items))
    room = LARGEST - len(dumps({**about, "items": [], "total": 2**53, "next": 2**53}))
    shown: list[Any] = []
    for item in result.items[offset:]:
        small = cut(item, secrets)
        room -= len(dumps(small)) + 1
        if room < 0:
            break
        shown.append(small)
    end = offset + len(shown)
    if result.ends is not None:
        follows = result.next if end == len(result.items) else result.ends[end - 1]
        return dumps({**about, "items": shown, "next": follows}).decode()
    follows = end if end < len(result.items) else None
    return dumps({**about, "items": shown, "total": len(result.items), "next": follows}).decode()


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8; no NaN, no half characters."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def cut(value: Any, secrets: Sequence[str], largest: int = LARGEST_ITEM) -> Any:
    """The value masked, finite and of at most `largest` bytes as JSON: long texts and lists lose their ends."""
    clean = _clean(value, secrets, 0)
    for text_most, list_most in STEPS:
        if len(dumps(clean)) <= largest:
            return clean
        clean = _shorter(clean, text_most, list_most)
    return clean if len(dumps(clean)) <= largest else "(too large to be shown)"


def _clean(value: Any, secrets: Sequence[str], depth: int) -> Any:
    match value:
        case str():
            return mask(value, secrets).encode("utf-8", "replace").decode()
        case bool() | None | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case _ if depth > DEEPEST:
            return "..."
        case Mapping():
            return {
                str(_clean(str(key), secrets, 0)): MASK
                if isinstance(one, str) and one and is_secret_name(str(key))
                else _clean(one, secrets, depth + 1)
                for key, one in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_clean(one, secrets, depth + 1) for one in value]
        case _:
            return _clean(str(value), secrets, depth)


def _shorter(value: Any, text_most: int, list_most: int) -> Any:
    match value:
        case str():
            return value if len(value) <= text_most else f"{value[:text_most]}... (+{len(value) - text_most})"
        case list():
            kept = [_shorter(one, text_most, list_most) for one in value[:list_most]]
            return kept if len(value) <= list_most else [*kept, f"... (+{len(value) - list_most})"]
        case dict():
            pairs = list(value.items())[:list_most]
            small = {str(_shorter(key, text_most, 0)): _shorter(one, text_most, list_most) for key, one in pairs}
            return small if len(value) <= list_most else {**small, "...": f"+{len(value) - list_most}"}
        case _:
            return value
