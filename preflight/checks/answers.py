"""Rows about what shapes every answer: the chat template, the checkpoint's sampling, a plugin from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from core.row import Row
from preflight.checks.scene import Scene, row
from preflight.facts.template import template

INPUT_SCALE = "VLLM_GLM53_MOE_INPUT_SCALE"


def chat_template(scene: Scene) -> Iterator[Row]:
    """A template of the checkpoint, or one that switches thinking off by an empty block, harms long answers."""
    given = scene.wanted.template
    if not given:
        return  # the image's own
    found = template(given, Path(scene.wanted.model))
    cure = "Unset CHAT_TEMPLATE: the image's template maps thinking off to a low effort."
    if found is None:
        if scene.wanted.inside:
            yield row("FAIL", f"{given} cannot be read", "a template in the container", cure)
        else:
            yield row("info", f"{given} is not on the host; the boot looks at it")
        return
    if found.own:
        yield row("WARN", f"{found.name} is the checkpoint's own", "the image's", cure)
    if closes_empty_think(found.text):
        seen = f"{found.name} closes an empty think block"
        yield row("WARN", seen, "an open <think> at the end of every prompt", cure)


def generation_settings(scene: Scene) -> Iterator[Row]:
    """A checkpoint without its sampling settings."""
    folder = Path(scene.wanted.model) if scene.wanted.model else None
    if folder is not None and folder.is_dir() and not (folder / "generation_config.json").is_file():
        cure = "Download it: without it vLLM samples with its own defaults instead of the model's."
        yield row("WARN", f"no generation_config.json in {folder}", "the checkpoint's", cure)


def attention_plugin(scene: Scene) -> Iterator[Row]:
    """A knob that nobody here reads."""
    if scene.wanted.input_scale:
        seen = f"{INPUT_SCALE}={scene.wanted.input_scale}"
        yield row("WARN", seen, "unset", "Unset it: only an outside plugin reads it, not this kit.")


def closes_empty_think(text: str) -> bool:
    """Whether the generation prompt of a template can end in an empty, closed think block."""
    tail = text[text.rfind("add_generation_prompt") :] if "add_generation_prompt" in text else ""
    compact = re.sub(r"\s|\\n", "", tail)
    return "<think></think>" in compact or "'<think>'~'</think>'" in compact
