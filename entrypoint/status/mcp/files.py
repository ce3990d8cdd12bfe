"""Tools that read files: logs, caches, vLLM's source, evidence. All of them need the token."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from core.mask import mask
from entrypoint.status.mcp.paging import LARGEST, dumps
from entrypoint.status.mcp.tool import Argument, Call, Result, Tool, ToolError
from entrypoint.status.reading import Lines, Outside, last_lines, lines_from, opened, walk
from entrypoint.status.searching import SearchFailed, ask_worker

SEARCH_S = 15.0
WINDOW = 128 * 1024
LONGEST_LINE = 2000


async def read_log(call: Call) -> Result:
    """The last lines of a file, or a page of it from an offset."""
    path, wanted = call.arguments["path"], call.arguments["lines"]
    offset = call.arguments["cursor"]
    try:
        found = await asyncio.to_thread(_read, call, path, offset, wanted, call.arguments["from_start"])
    except Outside as error:
        raise ToolError(str(error)) from None
    ends, position = [], found.start
    for length in found.lengths:
        position += length
        ends.append(min(position, found.size))
    more = found.end if found.end < found.size else None
    about = {"path": path, "size": found.size, "from": found.start, "unit": "bytes"}
    return Result(found.lines, about, ends=ends, next=more)


def _read(call: Call, path: str, offset: int, wanted: int, from_start: bool) -> Lines:
    with opened(call.roots(), path) as descriptor:
        if offset or from_start:
            found = lines_from(descriptor, offset, WINDOW, wanted)
        else:
            found = last_lines(descriptor, WINDOW, wanted)
    secrets = call.secrets
    # Masked before it is cut: half a secret is not found.
    lines = tuple(mask(line, secrets)[:LONGEST_LINE] for line in found.lines)
    found = Lines(lines, found.lengths, found.start, found.end, found.size)
    return found if offset or from_start else _last_page(found)


def _last_page(found: Lines) -> Lines:
    """The last of these lines that fit into one answer: who asks for the end wants the end."""
    room, kept = LARGEST - 1024, 0
    for line in reversed(found.lines):
        room -= len(dumps(line)) + 1
        if room < 0:
            break
        kept += 1
    dropped = len(found.lines) - kept
    start = found.start + sum(found.lengths[:dropped])
    return Lines(found.lines[dropped:], found.lengths[dropped:], start, found.end, found.size)


async def find_files(call: Call) -> Result:
    """Files beneath a folder, newest first."""
    given = call.arguments
    minutes = given["newer_than_minutes"]
    question = {
        "job": "find",
        "path": given["path"],
        "glob": _glob(given["name"]),
        "newer_than": time.time() - 60 * minutes if minutes else 0,
        "least_bytes": int(given["min_size_mb"] * 1024**2),
        "most": given["limit"],
    }
    answer = await _ask(call, question)
    return Result(answer["items"], {"found": answer["total"], "complete": answer["complete"]})


async def search_files(call: Call) -> Result:
    """Lines of files beneath a folder that match a regular expression."""
    given = call.arguments
    question = {
        "job": "search",
        "path": given["path"],
        "pattern": given["pattern"],
        "glob": _glob(given["glob"]),
        "most": given["limit"],
    }
    answer = await _ask(call, question)
    return Result(answer["items"], {"files_searched": answer["files"], "complete": answer["complete"]})


async def evidence(call: Call) -> Result:
    """What was kept when something broke: the folders, or the files of one."""
    name = call.arguments["folder"]
    if "/" in name:
        raise ToolError("folder: a name as this tool lists it")
    try:
        found = await asyncio.to_thread(_evidence, call, name)
    except Outside as error:
        raise ToolError(f"no evidence is kept on this box: {error}") from None
    return Result(found, {"read_with": "read_log, path evidence/<folder>/<file>"})


def _evidence(call: Call, name: str) -> list[dict[str, Any]]:
    home = f"evidence/{name}" if name else "evidence"
    with opened(call.roots()[:1], home, folder=True) as descriptor:
        if not name:
            names = os.listdir(descriptor)  # noqa: PTH208  (by descriptor)
            return [{"folder": one} for one in sorted(names, reverse=True) if not one.startswith(".")]
        return [{"file": entry.path, "bytes": entry.size} for entry, _ in walk(descriptor, home)]


async def _ask(call: Call, question: dict[str, Any]) -> dict[str, Any]:
    roots = [root.path for root in call.roots()]
    try:
        return await ask_worker({**question, "roots": roots, "secrets": list(call.secrets)}, SEARCH_S)
    except SearchFailed as error:
        raise ToolError(str(error)) from None


def _glob(text: str) -> str:
    if "/" in text:
        raise ToolError("a glob is for the file's name alone and holds no slash")
    return str(text)


PATH = Argument("path", "string", "A folder or file: absolute, or relative to the logs.", required=True, most=1024)
LOG = Argument(
    "path",
    "string",
    "A file: its name in the logs' folder, or an absolute path below a readable one.",
    "vllm.log",
    most=1024,
)

TOOLS = (
    Tool(
        "read_log",
        "The last lines of a log, or a page of it from `cursor` on.",
        read_log,
        (
            LOG,
            Argument("lines", "integer", "At most so many lines.", 200, least=1, most=2000),
            Argument("from_start", "boolean", "From the first line on, not the last ones.", False),
        ),
        reads_files=True,
        node=True,
    ),
    Tool(
        "find_files",
        "Files beneath a folder, newest first.",
        find_files,
        (
            PATH,
            Argument("name", "string", "Glob on the file's name.", "", most=120),
            Argument(
                "newer_than_minutes", "number", "Written within so many minutes; 0: whenever.", 0, least=0, most=1e7
            ),
            Argument("min_size_mb", "number", "At least so large.", 0, least=0, most=1e7),
            Argument("limit", "integer", "At most so many.", 200, least=1, most=2000),
        ),
        reads_files=True,
        node=True,
    ),
    Tool(
        "search_files",
        "Lines that match a regular expression (Python's), in text files of at most 64 MiB.",
        search_files,
        (
            Argument("pattern", "string", "The regular expression.", required=True, least=1, most=200),
            PATH,
            Argument("glob", "string", "Glob on the file's name.", "", most=120),
            Argument("limit", "integer", "At most so many lines.", 100, least=1, most=1000),
        ),
        reads_files=True,
        node=True,
    ),
    Tool(
        "evidence",
        "What was kept when something broke: folders, or one folder's files.",
        evidence,
        (Argument("folder", "string", "One of the folders; empty: list them.", "", most=120),),
        reads_files=True,
        node=True,
    ),
)
