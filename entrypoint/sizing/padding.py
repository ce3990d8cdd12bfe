"""Zero padding for TP=3 and 6: is it needed, and is it there? `./glm53 pad` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model as facts
from core.refusal import Refusal

# In config.json of a padded folder: the sizes as they were (experimental/tp_pad/rules.py).
MARK = "tp_pad_orig"


def unpadded(config: Mapping[str, Any], tp: str, folder: Path | str = "SRC") -> Refusal | None:
    """A refusal when `config` is of a checkpoint whose heads do not divide by `tp`; None when all is well."""
    ranks = int(tp.upper().removeprefix("RING"))
    text = {**config, **(config.get("text_config") or {})}
    heads = int(text.get("num_attention_heads") or facts.load()["target.mla.heads"])
    if heads % ranks == 0:
        return None
    if MARK in text:
        seen = f"padded for TP={text[MARK]['tp']}: {heads} heads"
        return Refusal("checkpoint", seen, f"heads that divide by {ranks}", "Set MODEL_HOST_DIR to the unpadded one.")
    cure = f"./glm53 pad {folder} {folder}-tp{ranks} --tp {ranks}"
    seen = f"{heads} heads, which do not divide by {ranks}"
    return Refusal("checkpoint", seen, f"a checkpoint padded for TP={ranks}", f"{cure}, then set MODEL_HOST_DIR.")
