"""A plan for people: 80 columns, the budget first, the long lists last. Pure."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from core.row import ORDER
from core.units import GIB, show_size
from entrypoint.sizing.rows import millions

WIDTH = 80
BAR = 24


def plan_text(plan: Mapping[str, Any], *, brief: bool = False) -> str:
    """The whole plan; `brief` leaves out the list of all knobs, the environment and the argv."""
    parts = [_head(plan), *_budget(plan), _numbers(plan), _rows(plan), _overlays(plan)]
    if not brief:
        parts += [_knobs(plan), _command(plan)]
    return "\n\n".join(part for part in parts if part) + "\n"


def difference_text(changes: Sequence[tuple[str, str, str]], names: tuple[str, str]) -> str:
    """What differs between two plans: a line each, two where they are long."""
    if not changes:
        return "The plans are equal.\n"
    width = max(len(name) for name, _, _ in changes)
    lines = [f"- {names[0]}", f"+ {names[1]}", ""]
    for name, mine, theirs in changes:
        mine, theirs = _readable(name, mine), _readable(name, theirs)
        if width + len(mine) + len(theirs) + 6 <= WIDTH:
            lines.append(f"{name:<{width}}  {mine} -> {theirs}")
        else:
            lines += [name, *_wrap(f"- {mine}", "    "), *_wrap(f"+ {theirs}", "    ")]
    return "\n".join(lines) + "\n"


def _head(plan: Mapping[str, Any]) -> str:
    left = f"glm53 plan   TP={plan['tp']}  {plan['topology']}  {plan['profile']}"
    right = f"group plan {plan['hash']}"
    return f"{left}{right:>{WIDTH - len(left)}}"


def _budget(plan: Mapping[str, Any]) -> list[str]:
    budgets = plan["budgets"]
    if not budgets:
        return []
    first, total = budgets[0], budgets[0]["total"]
    titles = "".join(f"{budget['role']:>9}" for budget in budgets)
    lines = [f"{'MEMORY OF ONE BOX, GiB':<24}{titles}"]
    columns = [{item["name"]: item for item in budget["items"]} for budget in budgets]
    for item in first["items"]:
        sizes = "".join(f"{column[item['name']]['size'] / GIB:>9.1f}" for column in columns)
        bar = "#" * round(item["size"] / total * BAR * 2)
        lines.append(f"  {item['name']:<22}{sizes}  {bar[:BAR]:<{BAR}} {item['source']}".rstrip())
    left = "".join(f"{budget['left'] / GIB:>9.1f}" for budget in budgets)
    lines.append(f"  {'left over':<22}{left}" + ("   TOO TIGHT" if min(b["left"] for b in budgets) < 0 else ""))
    lines.append(f"  {'MemTotal':<22}" + "".join(f"{budget['total'] / GIB:>9.1f}" for budget in budgets))
    lines.append("  (shapes: arithmetic; reported: by others; fitted: see docs/sizing.md)")
    return ["\n".join(lines)]


def _numbers(plan: Mapping[str, Any]) -> str:
    knobs = {knob["name"]: knob for knob in plan["knobs"]}
    shown = (
        ("KV_CACHE_MEMORY", "KV pool, pinned"), ("MAX_MODEL_LEN", "longest request"),
        ("MAX_NUM_SEQS", "decoding at once"), ("BLOCK_SIZE", "block"),
        ("MAX_NUM_BATCHED_TOKENS", "tokens of a step"), ("LONG_PREFILL_TOKEN_THRESHOLD", "one prompt's share"),
        ("CUDAGRAPH_MAX", "largest CUDA graph"), ("VLLM_ADAPTIVE_K_MODEL", "adaptive-k start"),
    )  # fmt: skip
    lines = ["NUMBERS"]
    for name, label in shown:
        knob = knobs.get(name)
        if knob is None or knob["value"] is None:
            continue
        value = show_size(knob["value"]) if knob["unit"] == "bytes" else str(knob["value"])
        lines += _hang(f"  {label:<20}{value:<18}", f"{knob['why']} ({knob['source']})")
    pool = plan["pool"]
    if pool:
        blocks = f"{pool['blocks']} blocks of {pool['bytes_per_block']} bytes; a longest request takes"
        lines += _hang(f"  {'pool, predicted':<20}{millions(pool['tokens']):<18}", f"{blocks} {pool['per_request']}")
    return "\n".join(lines)


def _rows(plan: Mapping[str, Any]) -> str:
    lines = ["WHAT TO KNOW"]
    for row in sorted(plan["rows"], key=lambda row: ORDER.index(row["level"])):
        judged = row["level"] in ("FAIL", "WARN")
        text = row["seen"] + (f"; {'expected ' if judged else ''}{row['expected']}" if row["expected"] else "")
        text += f". {row['cure'][:1].upper()}{row['cure'][1:]}" if row["cure"] else ""
        lines += _hang(f"  {row['level']:<5} ", f"{row['name']}: {text}")
    return "\n".join(lines) if plan["rows"] else ""


def _overlays(plan: Mapping[str, Any]) -> str:
    lines = ["OVERLAYS"]
    for overlay in plan["overlays"]:
        lines += _hang(f"  {overlay['name']:<14} ", overlay["summary"])
        for mount in overlay["mounts"]:
            lines += _wrap(f"{mount['source']} -> {mount['target']}", " " * 17)
        lines += [f"{'':17}{name}={value}" for name, value in overlay["environment"].items()]
    if not plan["overlays"]:
        lines.append("  none: vLLM's stock kernels")
    return "\n".join([*lines, f"  tag of the weights, with the image's part: {plan['weights']}"])


def _knobs(plan: Mapping[str, Any]) -> str:
    lines = ["EVERY KNOB (name, value, source; then its measured effect)"]
    width = max(len(knob["name"]) for knob in plan["knobs"]) + 1
    for knob in plan["knobs"]:
        value = _value(knob["value"])
        if knob["unit"] == "bytes" and isinstance(knob["value"], int):
            value += f" ({show_size(knob['value'])})"
        elif knob["unit"] and knob["value"] is not None:
            value += f" {knob['unit']}"
        text = f"{value}  [{knob['source']}]"
        lines += _hang(f"  {knob['name']:<{width}}", text)
        if knob["measured"]:
            lines += _wrap(knob["measured"], " " * 6)
    return "\n".join(lines)


def _value(value: Any) -> str:
    """As one would write it in compose/.env."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, str) and len(value) > WIDTH // 2 and "," in value and " " not in value:
        return value.replace(",", ", ")  # a long list of names: to be read, and to be wrapped
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _command(plan: Mapping[str, Any]) -> str:
    head, worker = plan["commands"]["head"], plan["commands"]["worker"]
    lines = ["ENVIRONMENT OF THE HEAD'S ENGINE"]
    for name, value in head["environment"].items():
        lines += _after_commas(f"  {name}={value}")
    lines += ["", "COMMAND OF THE HEAD"]
    lines += _arguments(head["argv"])
    own = [word for word in worker["argv"] if word not in head["argv"]]
    lines += ["", "A WORKER'S COMMAND DIFFERS BY"]
    lines += _wrap(f"{' '.join(own)} --node-rank 1... and no --host, --port", "  ")
    return "\n".join(lines)


def _arguments(argv: Sequence[str]) -> list[str]:
    """One flag with its values a line, continued as a shell would read it."""
    groups: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--") and groups[-1]:
            groups.append([])
        groups[-1].append(shlex.quote(word))
    lines = []
    for group in groups:
        line = f"  {' '.join(group)}"
        end = " \\" if group is not groups[-1] else ""
        if len(line + end) > WIDTH:
            lines += [f"  {group[0]} \\", f"    {' '.join(group[1:])}{end}"]
        else:
            lines.append(line + end)
    return lines


def _hang(start: str, text: str) -> list[str]:
    room = max(20, WIDTH - len(start))
    wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [(start + wrapped[0]).rstrip(), *(" " * len(start) + line for line in wrapped[1:])]


def _after_commas(line: str) -> list[str]:
    """A line that is too long goes on after a comma, nothing added: what is copied is what was meant."""
    lines = [""]
    for part in re.findall(r"[^,]*,|[^,]+$", line):
        if lines[-1].strip() and len(lines[-1] + part) > WIDTH:
            lines.append("      ")
        lines[-1] += part
    return lines


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _readable(name: str, value: str) -> str:
    in_bytes = name.endswith(("KV_CACHE_MEMORY", "draft_bytes")) or name.startswith(("head ", "worker "))
    return show_size(int(value)) if in_bytes and value.lstrip("-").isdigit() else value
