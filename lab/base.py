"""The lab's base image: Debian and the CPU vLLM, made on this machine, since no image can be pulled everywhere.

    python3 -m lab.base          makes glm53-lab-base:<vLLM> when the engine does not have it yet

It looks to image/build.sh like a vLLM image: python3 finds vllm, the fabric's tools are there. Needs root, debootstrap
and a Docker engine (.ci/docker-engine start).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from core.refusal import Refusal
from core.units import show_seconds
from lab import vllm
from launcher.paths import cache

SUITE = "bookworm"
PACKAGES = "python3,python3-distutils,iproute2,ibverbs-utils,ripgrep,pciutils,ca-certificates,libgomp1,libnuma1,procps"
SITE = "usr/local/lib/python3.11/dist-packages"
# Of no use on a CPU, or made again when needed.
LEFT_OUT = ("__pycache__", "*.pyc", "torch/test", "torch/include", "triton/backends/nvidia/bin")
LABEL = "glm53.lab.base"


def image() -> str:
    """The name of the base for the engine's vLLM."""
    return f"glm53-lab-base:{vllm.ENGINE}"


def recipe() -> str:
    """What the image was made from; part of its labels, so that a changed recipe makes another."""
    words = "|".join((SUITE, PACKAGES, *LEFT_OUT, vllm.environment().name))
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def ensure() -> str:
    """The image's name, made when the engine does not hold it. Raises Refusal without debootstrap or an engine."""
    wanted = recipe()
    look = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', image()]
    found = subprocess.run(look, capture_output=True, text=True, check=False)
    if found.returncode == 0 and found.stdout.strip() == wanted:
        return image()
    if "Cannot connect" in found.stderr:
        raise Refusal("Docker", "no engine answers", "a Docker engine", "export DOCKER_HOST=$(.ci/docker-engine start)")
    started = time.monotonic()
    print(f"glm53: making {image()} from Debian {SUITE} and the CPU wheel (once)", file=sys.stderr, flush=True)
    root = debian()
    engine = vllm.environment()
    (packages,) = (engine / "lib").glob("python3.*/site-packages")
    # The folder exists on both sides, and the engine takes no path twice.
    tar = [
        "tar",
        "-c",
        *(f"--exclude={name}" for name in (*LEFT_OUT, f"./{SITE}")),
        "--transform",
        f"s,^site-packages,{SITE},",
    ]
    tar += ["-C", str(root), ".", "-C", str(packages.parent), "site-packages"]
    load = [
        "docker",
        "import",
        "--change",
        f"LABEL {LABEL}={wanted}",
        "--change",
        "ENV PATH=/usr/local/bin:/usr/bin:/bin",
    ]
    with subprocess.Popen(tar, stdout=subprocess.PIPE) as reading:
        done = subprocess.run([*load, "-", image()], stdin=reading.stdout, capture_output=True, text=True, check=False)
    if done.returncode or reading.returncode:
        said = (done.stderr.strip().splitlines() or [f"tar exit {reading.returncode}"])[-1]
        raise Refusal("lab base", said, "docker import to succeed", "Look at the engine's log and free disk.")
    print(f"glm53: {image()} ready after {show_seconds(time.monotonic() - started)}", file=sys.stderr, flush=True)
    return image()


def debian() -> Path:
    """A minimal Debian tree in the cache."""
    if shutil.which("debootstrap") is None:
        raise Refusal("debootstrap", "not installed", "debootstrap", "sudo apt-get install debootstrap")
    folder = cache() / "debian" / hashlib.sha256(f"{SUITE}|{PACKAGES}".encode()).hexdigest()[:12]
    if (folder / "COMPLETE").exists():
        return folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "debootstrap.log"
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder / "root")]
    with log.open("wb") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        last = (log.read_text(errors="replace").splitlines() or ["no output"])[-1]
        raise Refusal("debootstrap", last, "a Debian mirror that answers", f"Read {log}")
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(folder / "root" / name, ignore_errors=True)
    (folder / "COMPLETE").touch()
    return folder / "root"


if __name__ == "__main__":
    try:
        print(ensure())
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
