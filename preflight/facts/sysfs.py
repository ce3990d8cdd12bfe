"""Small files of /sys and /proc: their text and numbers. What is wrong with one is empty or 0, never an error."""

from __future__ import annotations

from pathlib import Path


def read(path: Path, limit: int = 65536) -> str:
    """The stripped text of a small file; "" where it is absent, unreadable, binary or a folder."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip("\x00 \t\r\n")
    except OSError:
        return ""


def whole(text: str) -> int:
    """A counter's value; 0 for anything that is not one (sysfs files may be empty, torn or rubbish)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes, by its own names."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words:
            found[name] = whole(words[0]) * (1024 if words[-1] == "kB" else 1)
    return found
