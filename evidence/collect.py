"""What to keep when something breaks: written beside the engine's log before anything is ended. Linux, best effort.

Every part is tried by itself; what cannot be read says so in its file. Secrets are in none of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.mask import hide, known_secrets, mask

KEPT = 20  # folders; older ones are removed
STACK_S = 2.0  # for py-spy, where the image has it, over all processes
MOST_PROCESSES = 64
KERNEL_LINES = 300


def collect(
    logs: Path, name: str, summary: Mapping[str, Any], tail: Iterable[str], pids: Iterable[int], root: Path = Path("/")
) -> Path:
    """Write the folder <logs>/evidence/<time>-<name> and return it. Takes a few seconds at most. Raises OSError."""
    home = logs / "evidence"
    folder = home / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    pids = sorted(pids)[:MOST_PROCESSES]
    parts = {
        "summary.json": json.dumps(summary, indent=1, sort_keys=True, default=str),
        "engine.log": "\n".join(tail),
        "processes.txt": "\n".join(process(root / "proc", pid) for pid in pids),
        "stacks.txt": stacks(pids),
        "gids.txt": gids(root / "sys/class/infiniband"),
        "memory.txt": _text(root / "proc/meminfo"),
        "gpu.txt": gpu(),
        "kernel.log": kernel_log(root / "dev/kmsg"),
    }
    secrets = known_secrets(os.environ)
    parts["engine.log"] = mask(parts["engine.log"], secrets)  # whatever vLLM printed
    for file, text in parts.items():
        (folder / file).write_text(hide(text, secrets) + "\n", errors="replace")
    for old in sorted(path for path in home.iterdir() if path.is_dir())[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def process(proc: Path, pid: int) -> str:
    """One process: what it is, and where the kernel has each of its threads."""
    base = proc / str(pid)
    title = _text(base / "cmdline").replace("\0", " ").strip()[:300]
    status = {
        key: value.strip()
        for key, _, value in (line.partition(":") for line in _text(base / "status").splitlines())
        if key in ("Name", "State", "PPid", "VmRSS", "Threads", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    }
    lines = [f"== {pid} {title}", "   " + " ".join(f"{key}={value}" for key, value in status.items())]
    try:
        threads = sorted(os.listdir(base / "task"), key=int)  # noqa: PTH208
    except OSError as error:
        return "\n".join([*lines, f"   {error}"])
    for thread in threads[:64]:
        where = _text(base / "task" / thread / "wchan").strip()
        name = _text(base / "task" / thread / "comm").strip()
        call = _text(base / "task" / thread / "syscall").split(" ", 1)[0].strip()
        lines.append(f"   thread {thread} {name}: waits in {where}, system call {call}")
    return "\n".join(lines)


def stacks(pids: Iterable[int]) -> str:
    """Python stacks by py-spy, where it is installed and permitted."""
    tool = shutil.which("py-spy")
    if tool is None:
        return "py-spy is not in this image: see processes.txt for where each thread waits"
    until = time.monotonic() + STACK_S
    found = []
    for pid in pids:
        left = until - time.monotonic()
        if left <= 0:
            found.append("(out of time)")
            break
        try:
            done = subprocess.run(
                [tool, "dump", "--nonblocking", "--pid", str(pid)],
                capture_output=True,
                text=True,
                timeout=left,
                check=False,
            )
            found.append(done.stdout or f"{pid}: {done.stderr.strip()}")
        except (OSError, subprocess.TimeoutExpired) as error:
            found.append(f"{pid}: {error}")
    return "\n".join(found)


def gids(folder: Path) -> str:
    """The GID tables of all RDMA devices: a rail that lost its address shows here."""
    lines = []
    for path in sorted(folder.glob("*/ports/*/gids/*")):
        text = _text(path).strip()
        if text.strip("0:"):
            lines.append(f"{path.relative_to(folder)} {text}")
    return "\n".join(lines) or "no RDMA device here"


def gpu(root: Path = Path("/")) -> str:
    """Power, clock and use of each GPU: a rank that waits in a collective is busy by NVML's word and draws little."""
    from preflight.facts.usage import usage  # here: NVML is loaded for it

    lines = [f"{one.name}: {one.power} W, {one.clock} MHz, busy {one.busy} %" for one in usage(root, (), ()).gpus]
    return "\n".join(lines) or "no GPU that NVML sees here: power proves nothing"


def kernel_log(path: Path) -> str:
    """The last lines of the kernel's log; why not, where it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return f"{path}: {error.strerror}"
    lines: list[str] = []
    try:
        while True:
            lines.append(os.read(descriptor, 8192).decode(errors="replace").partition(";")[2].split("\n")[0])
    except OSError:
        pass  # EAGAIN: read to the end
    finally:
        os.close(descriptor)
    return "\n".join(lines[-KERNEL_LINES:])


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"({error.strerror})"
