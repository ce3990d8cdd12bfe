"""Ports of this box: who holds one, and a free one."""

from __future__ import annotations

import socket
from pathlib import Path

LISTEN = "0A"


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on at `host` now; the engine binds it soon after."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def who_listens(port: int, root: Path = Path("/")) -> str:
    """`name (pid N)` of a process listening on TCP `port`; "" when it cannot be told (other namespace or user)."""
    inodes = set()
    for table in ("proc/net/tcp", "proc/net/tcp6"):
        path = root / table
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        for fields in (line.split() for line in lines):
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for process in (root / "proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for entry in (process / "fd").iterdir():
                if str(entry.readlink()) in inodes:
                    return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue  # not ours to read, or ended meanwhile
    return ""
