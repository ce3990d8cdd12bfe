"""Words for the machine a number was measured on, and where results go. No host names, no paths."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

from core.units import show_size
from launcher.paths import ROOT

RESULTS = ROOT / "bench" / "results"


def machine() -> str:
    """Processor, cores, memory, kernel and Python in a line."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    size = show_size(round(int(memory.group(1)) / 1024**2) * 1024**3) if memory else "?"
    return (
        f"{cpu.group(1).strip() if cpu else platform.machine()}, {os.cpu_count()} cores, {size}, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def write(name: str, data: dict[str, Any]) -> Path:
    """Write bench/results/<name>.json with date and machine; prints it too."""
    RESULTS.mkdir(exist_ok=True)
    whole = {"date": datetime.date.today().isoformat(), "machine": machine(), **data}
    text = json.dumps(whole, indent=1)
    file = RESULTS / f"{name}.json"
    file.write_text(text + "\n")
    print(text)
    return file
