"""Processes as /proc shows them: enough to find, describe and signal what belongs to a box."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process; `born` (clock ticks since boot) tells a reused pid from the old one."""

    pid: int
    parent: int
    born: int
    state: str
    title: str


def look(pid: int) -> Process | None:
    """The process, or None when there is none (a zombie counts as none)."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
        title = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[19]), fields[0], title or name)


def everything() -> dict[int, Process]:
    """Pid to process, for all that this user may see."""
    found = (look(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def below(root: int, table: dict[int, Process] | None = None) -> list[Process]:
    """`root` and all its descendants, parents first."""
    table = everything() if table is None else table
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found = [table[root]] if root in table else []
    for process in found:
        found += children.get(process.pid, [])
    return found


def in_pid_namespace(inode: str) -> list[Process]:
    """All processes whose pid namespace is `inode` (as os.readlink of /proc/<pid>/ns/pid prints it)."""
    return [process for process in everything().values() if namespace_of(process.pid) == inode]


def namespace_of(pid: int) -> str:
    """The pid namespace a process lives in; empty when it is gone or not ours to ask."""
    try:
        return str((PROC / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return ""


def carrying(mark: str) -> list[Process]:
    """All processes that have `mark` (NAME=value) in their environment."""
    wanted = mark.encode()
    found = []
    for process in everything().values():
        try:
            environment = (PROC / str(process.pid) / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(process)
    return found


def send(processes: Iterable[Process], number: signal.Signals) -> int:
    """Signal each that is still the same process; returns how many were."""
    sent = 0
    for process in processes:
        now = look(process.pid)
        if now is None or now.born != process.born:
            continue
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue
        sent += 1
    return sent


def whole(act: Callable[[], None]) -> None:
    """Run `act` to its end although a Ctrl-C comes meanwhile, which is raised afterwards: in a thread, as signals
    meet the main one only. A process half made could not be found and ended.
    """
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()


def wait_until(condition: Callable[[], bool], deadline_s: float, every_s: float = 0.05) -> bool:
    """Ask `condition` until it holds or `deadline_s` seconds are over; says which."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every_s)
    return True
