"""A short-lived process that walks, matches and ends: `python -S -m entrypoint.status.search_worker`.

A regular expression can take for ever and a folder can hold millions of files; a process can be given limits and
killed. The question is JSON on stdin, the answer JSON on stdout, one object each. What a line hides (secrets) does
not match either, so that an expression cannot be used to guess it letter by letter. Standard library only.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from core.mask import mask
from entrypoint.status.reading import Entry, Outside, find, open_beneath, roots_of, walk

MOST_MEMORY = 512 * 1024**2
LARGEST_FILE = 64 * 1024**2
LONGEST_SHOWN = 500
BLOCK = 1 << 20
LONGEST_LINE = 64 * 1024


def main() -> int:
    """Exit status 0 with an answer, also where that says what was wrong with the question."""
    os.nice(19)
    question = json.load(sys.stdin)
    seconds = float(question["seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    until = time.monotonic() + 0.9 * seconds
    try:
        answer = JOBS[question["job"]](question, until)
    except Outside as error:
        answer = {"error": str(error)}
    except re.error as error:
        answer = {"error": f"pattern: {error}"}
    except (MemoryError, RecursionError, OverflowError):
        answer = {"error": "pattern: too large to be tried"}
    json.dump(answer, sys.stdout)
    return 0


def find_files(question: dict[str, Any], until: float) -> dict[str, Any]:
    """Files beneath `path`, newest first: glob on the name, least bytes, youngest and oldest write."""
    glob, after, least = question["glob"], question["newer_than"], question["least_bytes"]
    found: list[Entry] = []
    complete = True
    for entry, _ in _walk(question):
        if time.monotonic() > until:
            complete = False
            break
        name = entry.path.rpartition("/")[2]
        if entry.size >= least and entry.modified >= after and (not glob or fnmatch.fnmatchcase(name, glob)):
            found.append(entry)
    found.sort(key=lambda one: -one.modified)
    secrets = question["secrets"]
    items = [
        {"path": mask(one.path, secrets), "bytes": one.size, "modified": round(one.modified)}
        for one in found[: question["most"]]
    ]
    return {"items": items, "total": len(found), "complete": complete}


def search_files(question: dict[str, Any], until: float) -> dict[str, Any]:
    """Lines that match, file by file, newest file first, at most `most` in total."""
    expression = re.compile(question["pattern"])
    glob, secrets, most = question["glob"], question["secrets"], question["most"]
    entries: list[Entry] = []
    complete = True
    for entry, _ in _walk(question):
        if time.monotonic() > until:
            complete = False
            break
        name = entry.path.rpartition("/")[2]
        if entry.size <= LARGEST_FILE and (not glob or fnmatch.fnmatchcase(name, glob)):
            entries.append(entry)
    items: list[dict[str, Any]] = []
    roots = roots_of(question["roots"])
    searched = 0
    for entry in sorted(entries, key=lambda one: -one.modified):
        try:
            descriptor = open_beneath(*find(roots, entry.path), folder=False)
        except Outside:
            continue  # gone, or swapped for a link, since the walk
        searched += 1
        try:
            for number, text in _matching(_lines(descriptor), expression, secrets):
                items.append({"path": mask(entry.path, secrets), "line": number, "text": text[:LONGEST_SHOWN]})
                if len(items) >= most:
                    return {"items": items, "files": searched, "complete": False}
                if time.monotonic() > until:
                    return {"items": items, "files": searched, "complete": False}
        finally:
            os.close(descriptor)
        if time.monotonic() > until:
            return {"items": items, "files": searched, "complete": False}
    return {"items": items, "files": searched, "complete": complete}


def match_lines(question: dict[str, Any], until: float) -> dict[str, Any]:
    """The lines of a given text that match."""
    del until
    expression = re.compile(question["pattern"])
    lines = enumerate(question["text"].splitlines(), 1)
    found = [text for _, text in _matching(lines, expression, question["secrets"])]
    return {"items": found, "complete": True}


def _walk(question: dict[str, Any]) -> Iterator[tuple[Entry, int]]:
    roots = roots_of(question["roots"])
    root, parts = find(roots, question["path"])
    base = "/".join((root.path, *parts))
    try:
        descriptor = open_beneath(root, parts, folder=True)
    except Outside:
        if not parts:
            raise
        descriptor = open_beneath(root, parts, folder=False)  # one file is a fine place to search
        try:
            seen = os.fstat(descriptor)
            yield Entry(base, seen.st_size, seen.st_mtime), descriptor
        finally:
            os.close(descriptor)
        return
    try:
        yield from walk(descriptor, base)
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file that looks like text."""
    rest, number, offset = b"", 0, 0
    while block := os.pread(descriptor, BLOCK, offset):
        if offset == 0 and b"\0" in block[:4096]:
            return  # no text
        offset += len(block)
        pieces = (rest + block).split(b"\n")
        rest = pieces.pop()[-BLOCK:]
        for piece in pieces:
            number += 1
            yield number, piece[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
    if rest:
        yield number + 1, rest[:LONGEST_LINE].decode(errors="replace")


def _matching(
    lines: Iterator[tuple[int, str]], expression: re.Pattern[str], secrets: list[str]
) -> Iterator[tuple[int, str]]:
    """Lines that match as they are shown. The raw line is tried first: masking every line would be slow."""
    for number, line in lines:
        if expression.search(line):
            shown = mask(line, secrets)
            if shown == line or expression.search(shown):
                yield number, shown


JOBS: dict[str, Callable[[dict[str, Any], float], dict[str, Any]]] = {
    "find": find_files,
    "search": search_files,
    "match": match_lines,
}


if __name__ == "__main__":
    sys.exit(main())
