"""Zero padding for TP=3 and 6: is it needed, and is it there? `./glm53 pad` makes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import model as facts
from core.refusal import Refusal
from entrypoint.knobs import ranks

# In config.json of a padded folder: the sizes as they were (experimental/tp_pad/rules.py).
MARK = "tp_pad_orig"
# What a folder holds, by the knob that names it on the host.
NAMES = {"MODEL_HOST_DIR": "checkpoint", "DFLASH_HOST_DIR": "drafter"}
# The overlay that adds the zeros while loading and lets the vocabulary divide.
OVERLAY = "tp_pad"


def unpadded(
    config: Mapping[str, Any],
    tp: str,
    folder: Path | str = "SRC",
    *,
    knob: str = "MODEL_HOST_DIR",
    target: Path | str | None = None,
) -> Refusal | None:
    """A refusal when `config` is of a checkpoint whose heads do not divide by `tp`; None when all is well.

    `knob` names the folder on the host; `target` is where the padded one is to lie, beside `folder` unless given.
    """
    count = ranks(tp)
    text = {**config, **(config.get("text_config") or {})}
    heads, keys = _heads(config, text)
    # Fewer key-value heads than ranks are copied by vLLM, when they divide the ranks.
    if heads is None or (heads % count == 0 and (keys % count == 0 or count % keys == 0)):
        return None
    counted = f"{heads} heads" + (f" and {keys} key-value heads" if keys != heads else "")
    name = NAMES[knob]
    if isinstance(text.get(MARK), Mapping):
        seen = f"padded for TP={text[MARK].get('tp')}: {counted}"
        again = f" after ./glm53 pad SRC DST --tp {count}" if count % 3 == 0 else ""
        return Refusal(name, seen, f"heads that divide by {count}", f"Set {knob} to the unpadded one{again}.")
    cure = f"./glm53 pad {folder} {target or f'{folder}-tp{count}'} --tp {count}"
    seen = f"{counted}, which do not divide by {count}"
    return Refusal(name, seen, f"a {name} padded for TP={count}", f"{cure}, then set {knob} to it.")


def without_overlay(config: Mapping[str, Any], overlays: Collection[str], folder: Path | str) -> Refusal | None:
    """A refusal when `config` counts on zeros that nothing would add: a padded folder of hard links, no overlay."""
    mark = {**config, **(config.get("text_config") or {})}.get(MARK)
    if not isinstance(mark, Mapping) or OVERLAY in overlays:
        return None
    seen = f"{folder}, padded for TP={mark.get('tp')}, and the overlay {OVERLAY} left out"
    return Refusal("checkpoint", seen, f"{OVERLAY} mounted: it pads while loading", f"Do not leave {OVERLAY} out.")


def _heads(config: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[int | None, int]:
    """(query heads, key-value heads); None where the file names none and is not of the architecture we know."""
    heads = text.get("num_attention_heads")
    model = facts.load()
    if not heads and model["target.architecture"] in (config.get("architectures") or ()):
        heads = model["target.mla.heads"]
    if not isinstance(heads, int) or isinstance(heads, bool):
        return None, 1
    keys = text.get("num_key_value_heads")
    return heads, keys if isinstance(keys, int) and keys > 0 else heads
