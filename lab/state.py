"""What a lab is, as kept in .lab/<name>.json; a folder .lab/<name>/<box>/ holds each box's own files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from core.refusal import Refusal
from lab import blocks
from launcher.paths import ROOT

DEFAULT_NAME = "lab"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")  # part of a path, of GROUP_NAME and of host names


@dataclass(frozen=True)
class Box:
    """One box of a lab: `number` counts from 1, `name` is box<number>, `address` its own loopback address."""

    number: int
    name: str
    address: str
    folder: str

    @property
    def path(self) -> Path:
        """The box's folder: spec.json, keeper.json, kit.log, logs/, state/, home/, tmp/."""
        return Path(self.folder)


@dataclass(frozen=True)
class Lab:
    """A cluster on this machine.

    group        GROUP_NAME of its boxes
    block        third number of its loopback addresses
    namespaces   whether each box is a pid namespace of its own
    set          knobs for all boxes ("TP") or for one ("box2.TP"), as the user gave them
    api_port     of the door, status_port: of the page; the same on every box
    provider     a module of lab/providers
    starter      (pid, born) of the `lab up` that is still starting its boxes; (0, 0) afterwards
    tree         a folder with vllm/ that the engine's Python takes before its own; "" for none
    """

    name: str
    group: str
    block: int
    namespaces: bool
    api_port: int
    status_port: int
    set: Mapping[str, str]
    boxes: tuple[Box, ...]
    provider: str = "process"
    starter: tuple[int, int] = (0, 0)
    tree: str = ""

    def box(self, text: str) -> Box:
        """The box that `text` names: box2, 2 or its address."""
        for box in self.boxes:
            if text in (box.name, str(box.number), box.address):
                return box
        raise Refusal("box", text, "one of " + ", ".join(box.name for box in self.boxes), "./glm53 lab status")

    def settings_of(self, box: Box) -> dict[str, str]:
        """The user's knobs for one box: those for all, then its own. {box2} in a value is that box's address."""
        everyone = {name: value for name, value in self.set.items() if "." not in name}
        own = {name.split(".", 1)[1]: v for name, v in self.set.items() if name.startswith(f"{box.name}.")}
        chosen = everyone | own
        for other in self.boxes:
            chosen = {name: text.replace(f"{{{other.name}}}", other.address) for name, text in chosen.items()}
        return chosen


def home() -> Path:
    """The folder of all labs of this clone."""
    return ROOT / ".lab"


def check_name(name: str) -> None:
    """Refusal for a name that is no plain word: folders of that name are made and removed."""
    if not NAME.fullmatch(name):
        raise Refusal("--name", repr(name), "up to 40 letters, digits, - and _", "./glm53 lab --name other up")


def file_of(name: str) -> Path:
    """Where lab `name` is described."""
    return home() / f"{name}.json"


def describe(name: str, count: int, block: int, ports: tuple[int, int], namespaces: bool, set_: dict[str, str]) -> Lab:
    """A lab of `count` boxes on a claimed block."""
    boxes = tuple(
        Box(number, f"box{number}", blocks.address(block, number), str(home() / name / f"box{number}"))
        for number in range(1, count + 1)
    )
    return Lab(name, f"{name}-{block}", block, namespaces, *ports, set_, boxes)


def save(lab: Lab) -> None:
    """Write .lab/<name>.json, whole or not at all; it may hold secrets given with --set."""
    home().mkdir(exist_ok=True)
    new = file_of(lab.name).with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(lab), indent=1) + "\n")
    new.replace(file_of(lab.name))


def load(name: str) -> Lab:
    """The lab; Refusal when there is none of that name, or its description is not one."""
    file = file_of(name)
    try:
        data = json.loads(file.read_text())
        made = {"boxes": tuple(Box(**box) for box in data["boxes"]), "starter": tuple(data.get("starter", (0, 0)))}
        return Lab(**{**data, **made})
    except FileNotFoundError:
        raise Refusal("lab", f"no lab named {name}", "a lab that was brought up", "./glm53 lab up") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        cure = f"End its boxes if any run (ps -ef | grep keeper.py), then rm {file}"
        raise Refusal("lab", f"{file} does not describe a lab", "what `lab up` wrote", cure) from None
