"""What vLLM loads in each of its processes (entry point `vllm.general_plugins`): hooks the overlays that are on.

An overlay is on when its folder is mounted and its switch is not 0. One that does not fit this vLLM, or has a setting
it does not take, stops the start with its name, what is wrong and the cure. Each overlay's `hook.py` has `register() ->
None`; it may run more than once. The kit is not on this path: standard library and the overlays only.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experimental.edit import hooking
from experimental.fit import misfits
from experimental.settings import FLAG, faults

logger = logging.getLogger("vllm.glm53")
ROOM = Path(__file__).resolve().parent


class OverlayDoesNotFit(RuntimeError):
    """An overlay's hooked functions are not those of this vLLM."""


class OverlayMisset(RuntimeError):
    """A variable of an overlay says what it does not take."""


def register() -> None:
    """Hook every overlay that is on, in order.

    Raises OverlayDoesNotFit or OverlayMisset before anything of that overlay is changed.
    """
    tree = vllm_tree()
    for data in switched_on(ROOM, os.environ):
        name = data["name"]
        judge(data, os.environ)
        check(data, tree)
        if (ROOM / name / "hook.py").is_file():
            with hooking(name):
                importlib.import_module(f"experimental.{name}.hook").register()
            logger.info("glm53 overlay %s: hooked", name)


def judge(data: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raise OverlayMisset for the first variable of `data` (an overlay.toml) that says what it does not take."""
    accepted = [(entry["name"], entry["accepts"]) for entry in data.get("setting", ())]
    if "switch" in data:
        accepted.insert(0, (data["switch"], FLAG))
    for name, text, wanted in faults(accepted, environment):
        raise OverlayMisset(f"overlay {data['name']}: {name} is {text!r}, expected {wanted}. Correct or remove it")


def switched_on(room: Path, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The overlay.toml of each mounted overlay whose switch is not 0, by (order, name)."""
    found = [tomllib.loads(file.read_text()) for file in room.glob("*/overlay.toml")]
    on = [data for data in found if environment.get(data.get("switch", ""), "1") != "0"]
    return sorted(on, key=lambda data: (data["order"], data["name"]))


def check(data: Mapping[str, Any], tree: Path) -> None:
    """Raise OverlayDoesNotFit when a hooked function of `data` (an overlay.toml) is unknown in `tree`."""
    hooks = tuple((hook["file"], hook["function"], tuple(hook["digests"])) for hook in data.get("hook", ()))
    wrong = misfits(tree, hooks)
    if wrong:
        raise OverlayDoesNotFit(
            f"overlay {data['name']} does not fit this vLLM: {'; '.join(map(str, wrong))}. "
            f"Leave it out: ./glm53 --without {data['name']} up -d"
        )


def vllm_tree() -> Path:
    """The folder that holds vLLM's package."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise OverlayDoesNotFit("vLLM is not installed here; overlays run inside its image only")
    return Path(next(iter(spec.submodule_search_locations))).parent
