"""Who belongs to an engine, what shared memory they hold, and ending them. Linux /proc, standard library only.

Imported by the guard too, so it loads little. A process belongs when it descends from the guard (a subreaper: what
is orphaned beneath it stays beneath it), shares a session with one that does, or carries the mark in the
environment it was started with. The mark alone is not enough: vLLM's helpers rename themselves, which overwrites
the memory that /proc/PID/environ shows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

SHM = "/dev/shm/"
ENGINE_MARK = "GLM53_ENGINE"
BOX_MARK = "GLM53_BOX"

# (pid, start time in clock ticks since boot): a pid alone may be somebody else by now.
Process = tuple[int, int]


def table() -> dict[int, tuple[int, int, int]]:
    """pid -> (parent, session, start time) of every visible process that is not a zombie."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib would double the guard's memory)
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # The name in parentheses may hold blanks and parentheses: split after the last one.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended while we looked
        if fields[0] not in (b"Z", b"X"):
            found[int(name)] = (int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def marked(name: str, value: str) -> set[int]:
    """pids whose start environment holds name=value; those we may not read are not ours."""
    wanted = b"\0" + f"{name}={value}".encode() + b"\0"
    found = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:  # noqa: PTH123
                if wanted in b"\0" + file.read() + b"\0":
                    found.add(int(entry))
        except OSError:
            continue
    return found


def family(roots: Iterable[int], members: dict[int, tuple[int, int, int]] | None = None) -> set[Process]:
    """The roots still alive, all that descend from them, and all that share a session one of those leads."""
    members = table() if members is None else members
    children: dict[int, list[int]] = {}
    sessions: dict[int, list[int]] = {}
    for pid, (parent, session, _) in members.items():
        children.setdefault(parent, []).append(pid)
        sessions.setdefault(session, []).append(pid)
    found: set[int] = set()
    queue = list(roots)
    while queue:
        pid = queue.pop()
        if pid in found:
            continue
        found.add(pid)
        queue += children.get(pid, [])
        queue += sessions.get(pid, [])
    return {(pid, members[pid][2]) for pid in found if pid in members}


def alive(processes: Iterable[Process]) -> set[Process]:
    """Those that still run: same pid, same start time."""
    members = table()
    return {(pid, started) for pid, started in processes if pid in members and members[pid][2] == started}


def send(processes: Iterable[Process], number: int) -> None:
    """A signal to each that still runs."""
    for pid, _ in alive(processes):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or taken over by another user: confirmed by alive(), not here


def kill(processes: Iterable[Process]) -> None:
    """KILL to each that still runs."""
    send(processes, signal.SIGKILL)


def shared_memory(pids: Iterable[int]) -> set[str]:
    """Paths under /dev/shm that these processes map or hold open now.

    A semaphore is mapped under the name glibc made it with, which is deleted once it is linked to its own: it is
    found by its inode, in the /dev/shm that the process itself sees.
    """
    found = set()
    for pid in pids:
        renamed: set[int] = set()
        try:
            with open(f"/proc/{pid}/maps", errors="replace") as file:  # noqa: PTH123
                for line in file:
                    start = line.find(SHM)
                    if start >= 0:
                        found.add(line[start:].rstrip("\n"))
                        if line.endswith(" (deleted)\n"):
                            renamed.add(int(line.split(None, 5)[4]))
            for entry in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                target = os.readlink(f"/proc/{pid}/fd/{entry}")  # noqa: PTH115
                if target.startswith(SHM):
                    found.add(target)
        except OSError:
            pass  # ended while we looked
        if renamed:
            found |= _linked(renamed, f"/proc/{pid}/root{SHM}") or _linked(renamed, SHM)
    return {path for path in found if not path.endswith(" (deleted)")}


def _linked(inodes: set[int], folder: str) -> set[str]:
    """Paths under /dev/shm of these inodes; `folder` is where it is seen from here."""
    try:
        with os.scandir(folder) as entries:
            return {SHM + entry.name for entry in entries if entry.inode() in inodes}
    except OSError:
        return set()


def remove(paths: Iterable[str]) -> tuple[str, ...]:
    """Unlink shared-memory segments; those that were really there, sorted."""
    removed = []
    for path in sorted(paths):
        try:
            os.unlink(path)  # noqa: PTH108
        except OSError:
            continue  # its owner removed it
        removed.append(path)
    return tuple(removed)


def remembered(path: str) -> tuple[set[Process], set[str]]:
    """(processes, shared-memory segments) that a guard wrote to its note; empty when there is none."""
    processes: set[Process] = set()
    segments: set[str] = set()
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123
            for line in file:
                kind, _, rest = line.rstrip("\n").partition(" ")
                if kind == "shm" and rest.startswith(SHM) and "/../" not in rest:
                    segments.add(rest)
                pid, _, started = rest.partition(" ")
                if kind == "pid" and pid.isdigit() and started.isdigit():
                    processes.add((int(pid), int(started)))
    except OSError:
        pass  # no note: nothing was started
    return processes, segments
