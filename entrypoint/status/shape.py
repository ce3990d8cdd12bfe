"""What another box's page says, read by the published schema: a clean copy, or a ValueError that names the place.

Of JSON Schema this reads type, properties, required, items, enum, the limits of text, numbers and lists, and
additionalProperties as a schema. What the schema does not name is dropped; text that is too long is cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "schemas"
KINDS: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
TEXT = 2000  # characters, where the schema sets no limit
ITEMS = 500


@cache
def schema(name: str) -> dict[str, Any]:
    """A published schema, by name without suffix."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return found


def parse(text: bytes, wanted: Mapping[str, Any]) -> Any:
    """JSON text as `wanted` describes it. ValueError for anything else."""
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return take(wanted, data, "$")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def take(wanted: Mapping[str, Any], value: Any, where: str) -> Any:
    """The part of `value` that the schema names. ValueError for what does not fit it."""
    kinds = wanted.get("type", list(KINDS))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(_is(value, kind) for kind in kinds):
        raise ValueError(f"{where}: not {' or '.join(kinds)}")
    if "enum" in wanted and value not in wanted["enum"]:
        raise ValueError(f"{where}: not one of {', '.join(map(str, wanted['enum']))}")
    if isinstance(value, dict):
        return _object(wanted, value, where)
    if isinstance(value, list):
        if len(value) > wanted.get("maxItems", ITEMS):
            raise ValueError(f"{where}: more than {wanted.get('maxItems', ITEMS)} items")
        return [take(wanted.get("items", {}), item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, str):
        return value[: wanted.get("maxLength", TEXT)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(wanted, value, where)
    return value


def _number(wanted: Mapping[str, Any], value: float, where: str) -> float:
    if not math.isfinite(value) or not wanted.get("minimum", -1e18) <= value <= wanted.get("maximum", 1e18):
        raise ValueError(f"{where}: {value} is out of range")
    return value


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind])


def _object(wanted: Mapping[str, Any], value: dict[str, Any], where: str) -> dict[str, Any]:
    for name in wanted.get("required", ()):
        if name not in value:
            raise ValueError(f"{where}.{name}: missing")
    properties, others = wanted.get("properties", {}), wanted.get("additionalProperties")
    found = {name: take(properties[name], value[name], f"{where}.{name}") for name in properties if name in value}
    if isinstance(others, Mapping):
        rest = [name for name in value if name not in properties]
        if len(rest) > ITEMS:
            raise ValueError(f"{where}: more than {ITEMS} names")
        found |= {name[:200]: take(others, value[name], f"{where}.{name[:40]}") for name in rest}
    return found
