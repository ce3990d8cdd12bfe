"""Memory of the kit's own processes in one box while it serves: `python -m bench.memory`.

Two boxes serve (a group has at least two), and each box's kit is counted as if alone on the machine: file
pages that it shares with the other box's kit count whole, pages that its own processes share count once. Counted
twice: as it serves, and after its page was looked at and the MCP SDK was loaded by a client.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from bench import machine
from core.units import MIB
from lab import cluster, watch
from lab.providers import process
from lab.state import Box, Lab

TARGET_MIB = 96
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ (\S+) (\S+) (\d+) *(.*)$")


def main() -> None:
    """Run and write bench/results/memory.json."""
    lab, held = cluster.create("bench-memory", 2, {})
    with held:
        try:
            cluster.start_all(lab, held, [], print)
            watch.until_all_healthy(lab, 300, print)
            for _ in range(5):
                watch.ask(lab, lab.boxes[1], "Say something.", 60)
            found = {watch.line(lab, box).text.split()[0]: of_box(lab, box) for box in lab.boxes}
            for box in lab.boxes:
                load_everything(lab, box)
                name = watch.line(lab, box).text.split()[0]
                found[f"{name}_with_mcp"] = of_box(lab, box)
        finally:
            cluster.down(lab, grace_s=20)
    machine.write(
        "memory",
        {
            "what": "MiB of the kit's lasting processes in one box while serving, as if alone on the machine",
            "target_mib": TARGET_MIB,
            **found,
        },
    )


def of_box(lab: Lab, box: Box) -> dict[str, float | int]:
    """Processes of the kit in the box and their memory in MiB, as if alone and as shared with what runs now."""
    kits = [p for p in process.inside(lab, box) if any(words in p.title for words in process.KIT_TITLES)]
    alone, measured = together([p.pid for p in kits])
    return {
        "processes": len(kits),
        "alone_mib": round(alone / MIB, 1),
        "pss_beside_the_other_box_mib": round(measured / MIB, 1),
    }


def load_everything(lab: Lab, box: Box) -> None:
    """Make a box import all that its page ever needs: the page, Prometheus' text, and MCP by a client's handshake."""
    base = f"http://{box.address}:{lab.status_port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for path in ("/", "/memory", "/metrics"):
        opener.open(base + path, timeout=30).read()
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    answer = opener.open(urllib.request.Request(f"{base}/mcp", body, headers), timeout=60).read()
    assert b"serverInfo" in answer, answer


def together(pids: list[int]) -> tuple[int, int]:
    """Bytes of these processes: (as if alone on the machine, PSS beside all others)."""
    files: dict[tuple[str, str, str], int] = {}
    own = measured = 0
    for pid in pids:
        for key, sizes in mappings(pid):
            measured += sizes["Pss"]
            if key is None:
                own += sizes["Pss"]
            else:  # written pages are each process's own, the rest is one copy of the file
                own += sizes["Private_Dirty"]
                files[key] = max(files.get(key, 0), sizes["Rss"] - sizes["Private_Dirty"])
    return own + sum(files.values()), measured


def mappings(pid: int) -> list[tuple[tuple[str, str, str] | None, dict[str, int]]]:
    """Every mapping of a process: what file part it is (None: no file), and its sizes in bytes."""
    found: list[tuple[tuple[str, str, str] | None, dict[str, int]]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = MAPPING.match(line)
        if mapping:
            offset, device, inode, _name = mapping.groups()
            found.append(((device, inode, offset) if inode != "0" else None, {}))
        elif line.endswith(" kB"):
            name, _, rest = line.partition(":")
            found[-1][1][name] = int(rest.split()[0]) * 1024
    return found


if __name__ == "__main__":
    main()
