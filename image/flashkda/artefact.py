"""The packed form of a compiled FlashKDA: files with sha256, what they were built for, and a key of their inputs.

    python3 -m image.flashkda.artefact pack DIR --arch sm_121a --inputs-key KEY --commit C FILE...
    python3 -m image.flashkda.artefact check DIR

The key covers the compiled inputs only, so a change of a Python patch never asks for another build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from core.refusal import Refusal

NAME = "flashkda.json"


@dataclass(frozen=True)
class Artefact:
    """`files`: name -> sha256. `arch`: GPU architecture. `machine`: x86_64 or aarch64. Versions as major.minor."""

    files: Mapping[str, str]
    arch: str
    machine: str
    cpython: str
    cuda: str
    torch: str
    commit: str
    inputs_key: str


@dataclass(frozen=True)
class Place:
    """What a base offers; an empty string where it does not say."""

    machine: str
    cpython: str
    cuda: str
    torch: str


def pack(folder: Path, files: list[Path], place: Place, arch: str, commit: str, inputs_key: str) -> Artefact:
    """Copy files into a folder with their description."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = {}
    for file in files:
        shutil.copy2(file, folder / file.name)
        sums[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    made = Artefact(sums, arch, place.machine, place.cpython, place.cuda, place.torch, commit, inputs_key)
    (folder / NAME).write_text(json.dumps(asdict(made), indent=2) + "\n")
    return made


def load(folder: Path) -> Artefact:
    """Read a packed folder. Raises Refusal when a file is missing, altered, or not listed."""
    try:
        made = Artefact(**json.loads((folder / NAME).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise Refusal("--flashkda", f"{folder}: {error}", f"a folder with {NAME}", "Pack it again.") from None
    for name, wanted in made.files.items():
        path = folder / name
        if not path.is_file() or "/" in name:
            raise Refusal("--flashkda", f"{name} is missing", "every file that is listed", "Pack it again.")
        if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            raise Refusal("--flashkda", f"{name} is not the file that was packed", wanted, "Pack it again.")
    stray = sorted(path.name for path in folder.iterdir() if path.name not in (*made.files, NAME, "CHOSEN"))
    if stray:
        raise Refusal("--flashkda", f"{', '.join(stray)} not in the list", "only packed files", "Pack it again.")
    return made


def misfits(made: Artefact, place: Place) -> list[str]:
    """Where a packed build does not fit a base, a reason each. The stable ABI lets a newer torch and CPython pass."""
    reasons = []
    if made.machine != place.machine:
        reasons.append(f"built for {made.machine}, the base is {place.machine}")
    if place.cuda and made.cuda.split(".")[0] != place.cuda.split(".")[0]:
        reasons.append(f"built with CUDA {made.cuda}, the base has {place.cuda}")
    for what, mine, theirs in (("CPython", made.cpython, place.cpython), ("torch", made.torch, place.torch)):
        if theirs and _number(mine) > _number(theirs):
            reasons.append(f"built for {what} {mine} or newer, the base has {theirs}")
    return reasons


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def here() -> Place:
    """This Python and the torch beside it, read from its files: importing torch takes seconds and memory."""
    torch = cuda = ""
    for folder in map(Path, sys.path):
        version = folder / "torch" / "version.py"
        if version.is_file():
            text = version.read_text()
            torch = _value(text, "__version__")
            cuda = _value(text, "cuda")
            break
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Place(platform.machine(), python, cuda, torch.split("+")[0])


def _value(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*(?::[^=]*)?=\s*['\"]([^'\"]*)", text, re.M)
    return match.group(1) if match else ""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("pack", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    for name in ("--arch", "--commit", "--inputs-key"):
        parser.add_argument(name, default="")
    options = parser.parse_args()
    if options.action == "pack":
        made = pack(options.folder, options.files, here(), options.arch, options.commit, options.inputs_key)
    else:
        made = load(options.folder)
    print(json.dumps(asdict(made), indent=2))
    reasons = misfits(made, here())
    print("\n".join(f"does not fit this Python: {reason}" for reason in reasons) or "fits this Python")
    return 1 if reasons and options.action == "check" else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
