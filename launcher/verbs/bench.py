"""`./glm53 bench kernels [--python PATH] [...]`: check and measure the kernels of experimental/ on this machine's GPU.

Needs a Python with a CUDA torch and Triton 3.7 or later: the image's, or one of your own. `--dry-run`, with the same
options, lists what would be measured and needs neither; `./glm53 bench kernels --help` shows the options.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from shutil import which

from core.refusal import Refusal
from launcher.paths import ROOT

MODULES = {"kernels": "bench.kernels"}
# What lists a bench's cases with the standard library alone.
LISTINGS = {"kernels": "bench.kernels_sizes"}
PROBE = "import sys, torch, triton; sys.exit(0 if torch.cuda.is_available() else 3)"


def run(arguments: list[str]) -> int:
    """Exit status of the bench: 0 when every check held and the table was written."""
    parser = argparse.ArgumentParser(prog="glm53 bench", description=__doc__)
    parser.add_argument("what", choices=tuple(MODULES))
    parser.add_argument("--python", default="python3", help="an interpreter with a CUDA torch and Triton")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured; needs no GPU")
    asked = [word for word in arguments if word in LISTINGS]
    if asked and {"-h", "--help"} & set(arguments):  # what it measures has options of its own
        return subprocess.run([sys.executable, "-m", LISTINGS[asked[0]], "--help"], cwd=ROOT, check=False).returncode
    options, rest = parser.parse_known_args(arguments)
    if options.dry_run:
        listing = [sys.executable, "-m", LISTINGS[options.what], *rest]
        return subprocess.run(listing, cwd=ROOT, check=False).returncode
    python = which(options.python)
    if python is None:
        raise Refusal("--python", options.python, "an interpreter", "./glm53 bench kernels --python /path/to/python3")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, env=environment, check=False)
    if probe.returncode != 0:
        said = probe.stderr.strip().splitlines()
        raise Refusal(
            f"bench {options.what}",
            said[-1] if said else f"no GPU for {python}",
            "a Python with a CUDA torch and Triton, and a GPU",
            "docker run --rm --gpus all -v $PWD:/work -w /work --entrypoint python3 IMAGE -m bench.kernels",
        )
    command = [python, "-m", MODULES[options.what], *rest]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
