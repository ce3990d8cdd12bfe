"""How long `./glm53 plan` takes on a bare host: `python3 -m bench.plan [RUNS]`; the target is under 0.3 s.

Prints one JSON object: seconds of wall clock and of processor time, median and slowest, per TP size.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def once(tp: str) -> tuple[float, float]:
    """(wall, processor) seconds of one plan in an environment without the kit's packages."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([str(ROOT / "glm53"), "plan", "--tp", tp], check=True, stdout=subprocess.DEVNULL, env=environment)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(runs: int) -> None:
    """Measure and print."""
    report: dict[str, Any] = {"runs": runs, "load": os.getloadavg()[0], "target_s": 0.3}
    for tp in ("2", "3", "4", "6"):
        walls, processors = zip(*(once(tp) for _ in range(runs)), strict=True)
        report[f"tp{tp}"] = {
            "wall_median_s": round(statistics.median(walls), 3),
            "wall_max_s": round(max(walls), 3),
            "processor_median_s": round(statistics.median(processors), 3),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
