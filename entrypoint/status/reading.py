"""Files beneath a few named folders, and nothing else: opened by descriptor, component by component.

Every component is opened relative to the one before it and never through a symbolic link, so that nothing that is
swapped between a check and an open can lead out: there is no check by name at all. What comes of the last open is
looked at as it is: a regular file (or folder) of the same file system as its root. Linux; standard library only,
because the search worker imports it too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

LONGEST_PATH = 1024
DEEPEST = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Outside(Exception):
    """A path that is not readable here; the text says why and never repeats more of the disk than the caller sent."""


@dataclass(frozen=True)
class Root:
    """A folder whose files may be read: `path` as people write it."""

    path: str

    def parts_below(self, path: str) -> tuple[str, ...] | None:
        """The components of an absolute `path` beneath this root; None when it is not beneath it by name."""
        own, other = components(self.path), components(path)
        return other[len(own) :] if other[: len(own)] == own else None


def components(path: str) -> tuple[str, ...]:
    """The parts of a path. Raises Outside for what no honest path holds: "..", NUL, undecodable text."""
    if "\0" in path:
        raise Outside("a path holds no NUL")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise Outside("a path of text that no file name can hold") from None
    if size > LONGEST_PATH:
        raise Outside(f"a path is at most {LONGEST_PATH} bytes")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Outside("a path holds no ..")
    if len(parts) > DEEPEST:
        raise Outside(f"a path is at most {DEEPEST} folders deep")
    return parts


def find(roots: Sequence[Root], path: str) -> tuple[Root, tuple[str, ...]]:
    """The root that holds `path` by name, and the parts below it; a relative path is below the first root.

    Raises Outside, naming the roots.
    """
    if not path.startswith("/"):
        if not roots:
            raise Outside("no folder may be read on this box")
        return roots[0], components(path)
    for root in sorted(roots, key=lambda one: -len(one.path)):
        below = root.parts_below(path)
        if below is not None:
            return root, below
    raise Outside(f"only these folders are read: {', '.join(root.path for root in roots) or 'none'}")


@contextmanager
def opened(roots: Sequence[Root], path: str, *, folder: bool = False) -> Iterator[int]:
    """A descriptor of the regular file (or the folder) at `path`, closed at the end. Raises Outside."""
    root, parts = find(roots, path)
    descriptor = open_beneath(root, parts, folder=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_beneath(root: Root, parts: Sequence[str], *, folder: bool) -> int:
    """The descriptor of what lies at `parts` below the root. Raises Outside."""
    try:
        # The root itself may be a link: whoever set the knob chose it.
        here = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Outside(f"{root.path}: {error.strerror}") from None
    try:
        device = os.fstat(here).st_dev
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            below = open_one(part, here, folder=folder or not last)
            os.close(here)
            here = below
            seen = os.fstat(here)
            if seen.st_dev != device:
                raise Outside(f"{part}: lies on another file system than {root.path}")
            if last and not folder and not stat.S_ISREG(seen.st_mode):
                raise Outside(f"{part}: not a regular file")
        if not parts and not folder:
            raise Outside(f"{root.path}: a folder, not a file")
    except BaseException:
        os.close(here)
        raise
    return here


def open_one(name: str, folder_descriptor: int, *, folder: bool) -> int:
    """Open one component, never through a link. Raises Outside."""
    try:
        return os.open(name, _FOLDER if folder else _FILE, dir_fd=folder_descriptor)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file name"
        # Following no link gives ELOOP for a file and ENOTDIR for a folder: one text for both.
        raise Outside(f"{name[:200]}: {reason} (links are not followed)") from None


@dataclass(frozen=True)
class Entry:
    """A regular file met on a walk: its path as people write it, bytes, last write (seconds since 1970)."""

    path: str
    size: int
    modified: float


def walk(descriptor: int, base: str, most: int = 200_000) -> Iterator[tuple[Entry, int]]:
    """Every regular file beneath an open folder, with a descriptor that is valid until the next one.

    Links are neither followed nor told, other file systems not entered, at most `most` names looked at. What
    vanishes meanwhile is left out.
    """
    device = os.fstat(descriptor).st_dev
    seen = 0
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            folder = _again(descriptor, parts)
        except Outside:
            continue
        try:
            for name in sorted(_names(folder)):
                seen += 1
                if seen > most:
                    return
                kind = _kind(name, folder, device)
                if stat.S_ISDIR(kind) and len(parts) < DEEPEST:
                    waiting.append((*parts, name))
                elif stat.S_ISREG(kind):
                    yield from _file(name, folder, device, "/".join((base.rstrip("/"), *parts, name)))
        finally:
            os.close(folder)


def _again(descriptor: int, parts: Sequence[str]) -> int:
    """Open the folder at `parts` beneath an open one: names are kept, not descriptors, so that few are open."""
    here = os.dup(descriptor)
    for part in parts:
        try:
            below = open_one(part, here, folder=True)
        finally:
            os.close(here)
        here = below
    return here


def _kind(name: str, folder: int, device: int) -> int:
    """The mode of what the name is now; 0 when it is gone or on another file system."""
    try:
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return 0
    return seen.st_mode if seen.st_dev == device else 0


def _file(name: str, folder: int, device: int, path: str) -> Iterator[tuple[Entry, int]]:
    try:
        file = open_one(name, folder, folder=False)
    except Outside:
        return
    try:
        now = os.fstat(file)
        if stat.S_ISREG(now.st_mode) and now.st_dev == device:
            yield Entry(path, now.st_size, now.st_mtime), file
    finally:
        os.close(file)


def _names(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


@dataclass(frozen=True)
class Lines:
    """Whole lines of a file: `start` and `end` are byte offsets, `size` the file's; `lengths` in bytes, newline too."""

    lines: tuple[str, ...]
    lengths: tuple[int, ...]
    start: int
    end: int
    size: int


def lines_from(descriptor: int, offset: int, most_bytes: int, most_lines: int, *, unfinished: bool = True) -> Lines:
    """Whole lines from `offset`; one that begins before it is left out (half a line may be half a secret).

    A line longer than `most_bytes` is passed over whole: the rest of it is then "before" the next offset.
    `unfinished`: the file's last line counts although no newline ends it (yet).
    """
    size = os.fstat(descriptor).st_size
    offset = max(0, min(offset, size))
    data = os.pread(descriptor, most_bytes + 1, max(0, offset - 1)) if offset else os.pread(descriptor, most_bytes, 0)
    start = offset
    if offset:
        if data[:1] == b"\n":
            data = data[1:]
        else:
            _, found, rest = data[1:].partition(b"\n")
            start = offset + len(data[1:]) - len(rest)
            data = rest if found else b""
    ends_file = start + len(data) >= size
    pieces = data.split(b"\n")
    rest_of_line = pieces.pop()
    if ends_file and rest_of_line and unfinished:
        pieces.append(rest_of_line)
    kept = pieces[:most_lines]
    lengths = tuple(len(piece) + 1 for piece in kept)
    end = start + sum(lengths)
    if not kept and not ends_file:
        end = start + len(data)  # inside a line longer than the page: go on behind it
    return Lines(tuple(_text(piece) for piece in kept), lengths, start, min(end, size), size)


def _text(line: bytes) -> str:
    """A line as a terminal shows it: of a progress bar's many states (ended by carriage returns) the last."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


def last_lines(descriptor: int, most_bytes: int, most_lines: int) -> Lines:
    """The last whole lines of a file."""
    size = os.fstat(descriptor).st_size
    found = lines_from(descriptor, max(0, size - most_bytes), most_bytes, 10**9)
    lengths = found.lengths[-most_lines:]
    start = found.start + sum(found.lengths) - sum(lengths)
    return Lines(found.lines[-most_lines:], lengths, start, found.end, size)


def roots_of(paths: Iterable[str]) -> tuple[Root, ...]:
    """Roots of the absolute paths that are given, each once."""
    return tuple(Root(path) for path in dict.fromkeys(path.rstrip("/") for path in paths) if path.startswith("/"))
