"""Every box's memory as one bar, the plan's beside it, and a table of both. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.units import GIB, show_size
from entrypoint.status.plots import Part, bar

# Order and colour class of the parts, in the picture and in the table.
KINDS = {
    "weights": "m-weights",
    "KV cache": "m-kv",
    "graphs and activations": "m-graphs",
    "other torch": "m-torch",
    "NCCL, CUDA and JIT": "m-nccl",
    "other GPU processes": "m-gpu",
    "engine's processes": "m-engine",
    "the kit": "m-kit",
    "other processes": "m-others",
    "shared memory": "m-shared",
    "kernel": "m-kernel",
    "driver and unaccounted": "m-rest",
    "GPU driver, CUDA, NCCL, JIT and unaccounted": "m-rest",
    "page cache": "m-cache",
    "reclaimable kernel": "m-cache2",
    "free": "m-free",
    "left over": "m-free",
}


def memory(boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Bars and a table; None before any box has looked."""
    told = [row for row in boxes if row["status"] and row["status"]["memory"]["total"]]
    if not told:
        return None
    columns, names = [], []
    for row in told:
        data = row["status"]["memory"]
        columns.append((row["status"]["service"]["hostname"] or row["lan"], data["segments"], data))
    planned = next((data for _, _, data in columns if data["plan"]), None)
    bars = [
        {
            "name": name,
            "svg": _bar(name, parts, data["total"]),
            "free": show_size(data["available"]),
            "total": show_size(data["total"]),
            "warning": data["warning"],
            "slope": _slope(data["slope_per_hour"]),
        }
        for name, parts, data in columns
    ]
    tables = [parts for _, parts, _ in columns]
    heads = [name for name, _, _ in columns]
    if planned is not None:
        bars.append(
            {
                "name": "plan",
                "svg": _bar("plan", planned["plan"], planned["total"]),
                "free": "",
                "total": show_size(planned["total"]),
                "warning": "",
                "slope": "",
            }
        )
        tables.append(planned["plan"])
        heads.append("plan")
    names = [name for name in KINDS if any(one["name"] == name for parts in tables for one in parts)]
    names += sorted({one["name"] for parts in tables for one in parts} - set(KINDS))
    lines = [
        {"name": name, "kind": KINDS.get(name, "m-rest"), "cells": [_cell(parts, name) for parts in tables]}
        for name in names
    ]
    return {"bars": bars, "heads": heads, "lines": lines}


def _bar(name: str, parts: Sequence[Mapping[str, Any]], total: int) -> Any:
    order = list(KINDS)
    ordered = sorted(parts, key=lambda one: order.index(one["name"]) if one["name"] in KINDS else len(order))
    drawn = [
        Part(one["size"] / total, KINDS.get(one["name"], "m-rest"), f"{one['name']} {show_size(one['size'])}")
        for one in ordered
    ]
    largest = sorted(ordered, key=lambda one: -one["size"])[:4]
    return bar(drawn, f"{name}: " + ", ".join(f"{one['name']} {show_size(one['size'])}" for one in largest))


def _cell(parts: Sequence[Mapping[str, Any]], name: str) -> str:
    size = sum(one["size"] for one in parts if one["name"] == name)
    return f"{size / GIB:.2f}" if size else ""


def _slope(slope: int | None) -> str:
    if slope is None or abs(slope) < 64 * 1024**2:
        return ""
    return f"{'rising' if slope > 0 else 'falling'} by {show_size(abs(slope))} an hour"
