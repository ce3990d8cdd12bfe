"""Leave an MTP layer unquantised when the checkpoint stores no scales for it.

Installed into the vllm package by the patch `mtp-bf16`; called before the layer is built.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vllm.logger import init_logger

logger = init_logger(__name__)
INDEX = "model.safetensors.index.json"


def exclude_unquantised(vllm_config: Any, prefix: str) -> bool:
    """Add `prefix` to the quantisation's exclusions if its weights have no scales; True when it was added.

    `prefix` ends in the layer's number. Nothing happens when the index cannot be read or the quantisation has no
    list of exclusions: then vLLM decides as it always did.
    """
    excluded = getattr(vllm_config.quant_config, "exclude_modules", None)
    if not isinstance(excluded, list):
        return False
    # With a separate draft model configuration the layer's weights still lie in the draft's own folder.
    draft = getattr(vllm_config.speculative_config, "draft_model_config", None)
    folder = Path(str(getattr(draft, "model", None) or vllm_config.model_config.model))
    names = _tensors(folder / INDEX, f".layers.{prefix.rsplit('.', 1)[-1]}.")
    if not names or any(name.endswith(("weight_scale", "weight_scale_2")) for name in names):
        return False
    pattern = f"{prefix}.*"
    if pattern not in excluded:
        excluded.append(pattern)
        logger.info("glm53: %s has %d tensors and no scales; it is loaded unquantised", prefix, len(names))
    return True


def _tensors(index: Path, part: str) -> list[str]:
    try:
        weights = json.loads(index.read_text())["weight_map"]
    except (OSError, ValueError, KeyError) as error:
        logger.warning("glm53: %s cannot be read (%s); the MTP layer is built as configured", index, error)
        return []
    return [name for name in weights if part in name]
