"""How long `./glm53 plan` takes on a bare host: `python3 -m bench.plan [RUNS]`; the target is under 0.3 s.

Prints one JSON object: seconds of wall clock and of processor time, median and slowest, per TP size; the last beside a
checkpoint with an index of the real one's length, which is hashed and compared.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def write_checkpoint(folder: Path) -> None:
    """config.json and an index of some 150,000 tensors in 40 files of a byte."""
    config = {"architectures": ["Glm5NextForConditionalGeneration"], "text_config": {"num_attention_heads": 64}}
    (folder / "config.json").write_text(json.dumps(config))
    parts = [
        f"{part}_proj.{kind}" for part in ("gate", "up", "down") for kind in ("weight", "weight_scale", "input_scale")
    ]
    names = [f"model.layers.{n}.mlp.experts.{e}.{part}" for n in range(3, 60) for e in range(288) for part in parts]
    files = [f"model-{number:05d}-of-00040.safetensors" for number in range(40)]
    for name in files:
        (folder / name).write_bytes(b"0")
    index = {"metadata": {"total_size": 1}, "weight_map": {name: files[n % 40] for n, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def once(tp: str, *more: str) -> tuple[float, float]:
    """(wall, processor) seconds of one plan in an environment without the kit's packages."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [str(ROOT / "glm53"), "plan", "--tp", tp, *more], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(runs: int) -> None:
    """Measure and print."""
    report: dict[str, Any] = {"runs": runs, "load": os.getloadavg()[0], "target_s": 0.3}
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        cases = {f"tp{tp}": (tp,) for tp in ("2", "3", "4", "6")} | {"tp4_with_checkpoint": ("4", "--model", folder)}
        for name, arguments in cases.items():
            walls, processors = zip(*(once(*arguments) for _ in range(runs)), strict=True)
            report[name] = {
                "wall_median_s": round(statistics.median(walls), 3),
                "wall_max_s": round(max(walls), 3),
                "processor_median_s": round(statistics.median(processors), 3),
            }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
