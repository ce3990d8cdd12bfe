"""Tools that say how the box and the group stand: what the page's JSON says, in pages."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from entrypoint.status.mcp.tool import Argument, Call, Result, Tool, ToolError
from entrypoint.status.reading import Outside, Root, open_beneath, walk


async def node_status(call: Call) -> Result:
    """One box in short."""
    status = call.status()
    box, generation = status["box"], status["generation"]
    current: dict[str, Any] = next((one for one in status["stages"] if one["key"] == status["stage"]), {})
    about = {
        "hostname": status["service"]["hostname"],
        "lan": box["lan"],
        "role": box["role"],
        "rank": box["rank"],
        "state": box["state"],
        "stage": status["stage"],
        "step": current.get("step", ""),
        "elapsed_s": current.get("elapsed_s"),
        "healthy": status["healthy"],
        "sentence": status["sentence"],
        "generation": generation,
        "selftest": status["selftest"]["verdict"],
        "engine": {name: status["engine"][name] for name in ("pid", "running", "exit")},
        "url": status["url"],
    }
    return Result(status["refusals"], about)


async def cluster_status(call: Call) -> Result:
    """Every box as this one sees it."""
    status = call.status()
    about = {"healthy": status["healthy"], "sentence": status["sentence"], "election": status["election"]}
    return Result(status["members"], about)


async def preflight(call: Call) -> Result:
    """The rows of the checks."""
    rows = call.status()["rows"]
    level = call.arguments["level"]
    return Result([row for row in rows if not level or row["level"] == level])


async def plan(call: Call) -> Result:
    """The planned values with their sources."""
    found = call.status()["plan"]
    if found is None:
        raise ToolError("nothing is planned yet: this box has not sized the model")
    wanted = call.arguments["name"].upper()
    return Result([one for one in found["values"] if wanted in one["name"].upper()], {"hash": found["hash"]})


async def memory(call: Call) -> Result:
    """Where this box's memory is."""
    from preflight.facts import memory as look

    boot = call.boot
    seen = await asyncio.to_thread(look, boot.root)
    about = {
        "total": seen.total,
        "available": seen.available,
        "engine_rss": boot.rank.rss_bytes,
        "engine_processes": boot.rank.processes,
        "unit": "bytes",
    }
    return Result((), about)


async def cache_sizes(call: Call) -> Result:
    """The folders of compiled kernels and their growth."""
    home = Path(call.boot.text("CACHE_ROOT", "/cache"))
    rows = await asyncio.to_thread(_caches, home, time.monotonic() + 10.0)
    return Result(rows, {"folder": str(home)})


def _caches(home: Path, until: float) -> list[dict[str, Any]]:
    """One row a folder beneath `home`: bytes, files, seconds since the last write; `complete` false out of time."""
    rows = []
    try:
        folders = sorted(path.name for path in home.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError as error:
        raise ToolError(f"{home}: {error.strerror}") from None
    for name in folders[:100]:
        size = count = 0
        newest: float | None = None
        complete = True
        try:
            descriptor = open_beneath(Root(str(home)), (name,), folder=True)
        except Outside:
            continue  # gone meanwhile
        try:
            for entry, _ in walk(descriptor, name):
                size, count = size + entry.size, count + 1
                newest = max(newest or 0.0, entry.modified)
                if time.monotonic() > until:
                    complete = False
                    break
        finally:
            os.close(descriptor)
        idle = None if newest is None else max(0, round(time.time() - newest))
        rows.append({"name": name, "bytes": size, "files": count, "idle_s": idle, "complete": complete})
    return rows


LEVEL = Argument("level", "string", "Only rows of this level.", "", choices=("", "FAIL", "WARN", "ok", "info"))
NAME = Argument("name", "string", "Only values whose name holds this text.", "", most=80)

TOOLS = (
    Tool("node_status", "One box: role, stage, health, why it is not healthy, refusals.", node_status, node=True),
    Tool("cluster_status", "All boxes as this one sees them, and why the cluster is not healthy.", cluster_status),
    Tool("preflight", "The rows of the checks before loading: seen, expected, cure.", preflight, (LEVEL,), node=True),
    Tool("plan", "Every planned value with its source, reason and measured effect.", plan, (NAME,)),
    Tool("memory", "Where this box's memory is.", memory, node=True),
    Tool("cache_sizes", "Caches of compiled kernels: bytes, files, last write.", cache_sizes, node=True),
)
