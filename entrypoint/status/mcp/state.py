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
        "answer": status["answer"],
        "troubles": status["troubles"],
        "alarms": status["alarms"],
        "generation": generation,
        "selftest": status["selftest"]["verdict"],
        "engine": {name: status["engine"][name] for name in ("pid", "running", "exit")},
        "url": status["url"],
    }
    return Result(status["refusals"], about)


async def cluster_status(call: Call) -> Result:
    """Every box as this one sees it."""
    found = await call.context.look()
    about = {name: found[name] for name in ("healthy", "mood", "sentence", "agree", "seen_from")}
    about["election"] = call.status()["election"]
    return Result([_in_short(row) for row in found["boxes"]], about)


def _in_short(row: dict[str, Any]) -> dict[str, Any]:
    """One box of /cluster.json: where it is, whether it answers, and what it says of itself."""
    short = {name: row[name] for name in ("lan", "url", "here", "reachable", "age_s", "error")}
    status = row["status"]
    if status is None:
        return short
    box = status["box"]
    return {
        **short,
        "hostname": status["service"]["hostname"],
        **{name: box[name] for name in ("role", "rank", "state")},
        **{name: status[name] for name in ("stage", "healthy", "sentence")},
    }


async def throughput(call: Call) -> Result:
    """The head's samples, on whichever box one asks."""
    found = await call.context.look()
    for row in found["boxes"]:
        told = row["status"]["throughput"] if row["status"] is not None else None
        if told is not None:
            break
    else:
        raise ToolError("no samples yet: they are taken on the head while its engine serves")
    columns = {name: values for name, values in told.items() if isinstance(values, list)}
    count = min((len(values) for values in columns.values()), default=0)
    first = max(0, count - int(call.arguments["last"]))
    samples = [{name: values[index] for name, values in columns.items()} for index in range(first, count)]
    about = {name: value for name, value in told.items() if name not in columns}
    return Result(samples, {"source": row["lan"], "order": "newest last", **about})


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
    """Where this box's memory is, and what the plan gave to each."""
    found = dict(call.status()["memory"])
    lists = {name: found.pop(name) for name in ("segments", "plan", "workers")}
    items = [{"of": of, **one} for of, rows in lists.items() for one in rows]
    # "total" is the number of items in every answer of a tool.
    return Result(items, {"mem_total": found.pop("total"), **found, "unit": "bytes"})


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


LAST = Argument("last", "integer", "So many samples, ten seconds each.", 12, least=1, most=180)
LEVEL = Argument("level", "string", "Only rows of this level.", "", choices=("", "FAIL", "WARN", "ok", "info"))
NAME = Argument("name", "string", "Only values whose name holds this text.", "", most=80)

TOOLS = (
    Tool("node_status", "One box: role, stage, health, why it is not healthy, refusals.", node_status, node=True),
    Tool("cluster_status", "All boxes as this one sees them, and why the cluster is not healthy.", cluster_status),
    Tool("preflight", "The rows of the checks before loading: seen, expected, cure.", preflight, (LEVEL,), node=True),
    Tool("plan", "Every planned value with its source, reason and measured effect.", plan, (NAME,)),
    Tool("throughput", "Decode, prefill, requests, acceptance, latencies and KV use of late.", throughput, (LAST,)),
    Tool("memory", "Where this box's memory is, against the plan's budget, and its trend.", memory, node=True),
    Tool("cache_sizes", "Caches of compiled kernels: bytes, files, last write.", cache_sizes, node=True),
)
