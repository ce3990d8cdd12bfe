"""The environment and command of a box's kit: the lab profile. Nothing else tells the kit that it is in a lab."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lab.state import Box, Lab
from launcher.paths import cache

# A unix socket's path ends at 107 characters; vLLM adds up to 45 to TMPDIR for its own.
LONGEST_TMPDIR = 60


def command(python: Path) -> list[str]:
    """The kit's command: what the image runs too."""
    return [str(python), "-m", "entrypoint"]


def environment(lab: Lab, box: Box, root: Path, engine_python: Path, model: Path) -> dict[str, str]:
    """Everything the kit of `box` is started with; the user's knobs win. `root` is the kit's own folder."""
    folder = box.path
    folders = {name: str(folder / name) for name in ("home", "logs", "state", "tmp")}
    process = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": folders["home"],
        "TMPDIR": folders["tmp"] if len(folders["tmp"]) <= LONGEST_TMPDIR else str(short_tmp(lab, box)),
        # The kit drops its own folder from it for the engine; a tree of another vLLM stays.
        "PYTHONPATH": os.pathsep.join(part for part in (str(root), lab.tree) if part),
        "PYTHONPYCACHEPREFIX": str(cache() / "pycache"),  # compiled once, as in the image; no file in the clone
        "GLM53_LAB_BOX": f"{lab.group}/{box.name}",
        # Eager vLLM still compiles a few small functions with g++: half a minute of the first answer, and a
        # compiler that a newcomer may not have.
        "TORCH_COMPILE_DISABLE": "1",
    }
    profile = {
        "ENGINE_PROFILE": "lab-cpu",
        "GROUP_NAME": lab.group,
        "TP": str(len(lab.boxes)),
        "LAN_ADDRESS": box.address,
        "STATUS_BIND": box.address,
        "STATUS_PORT": str(lab.status_port),
        "API_PORT": str(lab.api_port),
        "ON_REFUSAL": "exit",
        "FABRIC_CHECK": "0",
        "ENGINE_PYTHON": str(engine_python),
        "MODEL_DIR": str(model),
        "SPEC_METHOD": "none",
        "GPU_MEM_UTIL": "0.1",  # on CPU: the share of memory that must be free when a box starts
        "STATE_DIR": folders["state"],
        "LOG_DIR": folders["logs"],
        "CACHE_ROOT": str(cache() / "lab" / box.name),  # as the volume of a box, which survives `down`
        "ENGINE_STOP_S": "20",  # nothing of a tiny model is worth waiting longer for
    }
    return process | profile | lab.settings_of(box)


def make_folders(environment: Mapping[str, str], box: Box) -> None:
    """The folders that a container would have as volumes. A folder the user chose is the user's to make."""
    for name in ("HOME", "TMPDIR", "STATE_DIR", "LOG_DIR", "CACHE_ROOT"):
        folder = Path(environment[name])
        if box.path in folder.parents or cache() in folder.parents or name == "TMPDIR":
            folder.mkdir(parents=True, exist_ok=True)


def short_tmp(lab: Lab, box: Box) -> Path:
    """The box's TMPDIR where the clone lies too deep for a socket: in the cache, else in /tmp."""
    for base in (cache() / "tmp", Path("/tmp")):
        folder = base / f"glm53-{lab.group}-{box.number}"
        if len(str(folder)) <= LONGEST_TMPDIR:
            return folder
    raise AssertionError("/tmp is short enough")
