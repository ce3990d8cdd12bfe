"""`./glm53 knobs write|check`: the files generated from the knobs, written anew or compared."""

from __future__ import annotations

import difflib

from core.refusal import Refusal
from launcher.generate import files, stale
from launcher.paths import ROOT


def run(arguments: list[str]) -> int:
    """Exit status: 0 when the files are in step (check) or written (write), 1 when check finds a difference."""
    if arguments == ["write"]:
        return write()
    if arguments == ["check"]:
        return check()
    raise Refusal("knobs", " ".join(arguments) or "nothing", "write or check", "./glm53 knobs write")


def write() -> int:
    """Write what differs and name it."""
    for name, text in files(ROOT).items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    for name in stale(ROOT):
        (ROOT / name).unlink()
        print(f"removed {name}")
    return 0


def check() -> int:
    """Print the differences as a diff."""
    differing = 0
    for name, text in files(ROOT).items():
        path = ROOT / name
        seen = path.read_text() if path.exists() else ""
        if seen != text:
            differing += 1
            print("".join(difflib.unified_diff(seen.splitlines(True), text.splitlines(True), name, "from the knobs")))
    for name in stale(ROOT):
        differing += 1
        print(f"{name} belongs to no overlay")
    print(f"{differing} generated files out of step: ./glm53 knobs write" if differing else "generated files in step")
    return 1 if differing else 0
