"""What the image says before vLLM is started: pure, from settings and two folders.

`refusals` stop the start, `rows` are shown with the others of preflight.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from core.refusal import Refusal
from core.row import Row

PLUGIN_GROUP = "vllm.general_plugins"
SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"
INPUT_SCALE = "VLLM_GLM53_MOE_INPUT_SCALE"


def plugins(folders: Iterable[Path]) -> dict[str, str]:
    """Names and places of vLLM plugins among Python packages, read from their metadata; nothing is imported."""
    found: dict[str, str] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.dist-info/entry_points.txt")):
            parser = configparser.ConfigParser(delimiters=("=",))
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            try:
                parser.read_string(file.read_text(errors="replace"))
            except configparser.Error:
                continue
            if parser.has_section(PLUGIN_GROUP):
                found |= dict(parser.items(PLUGIN_GROUP))
    return found


def refusals(environ: Mapping[str, str], packages: Iterable[Path]) -> tuple[Refusal, ...]:
    """The plugin switch without any plugin: vLLM would refuse it after minutes, this does at once."""
    if environ.get(SWITCH, "").lower() in ("", "0", "false"):
        return ()
    if plugins(packages):
        return ()
    cure = f"Install the plugin where vLLM's Python finds it (compose/ext.yaml: docs/rebasing.md), or unset {SWITCH}."
    return (Refusal(SWITCH, "set, and no vLLM plugin is installed", "a plugin that registers the backend", cure),)


def rows(environ: Mapping[str, str], model: Path, template: Path | None) -> Iterator[Row]:
    """Warnings about the template, the checkpoint's generation settings, and a knob nobody here reads."""
    if environ.get(INPUT_SCALE):
        yield Row(INPUT_SCALE, "WARN", environ[INPUT_SCALE], "unset", "Only an outside plugin reads it.", "plugin")
    if template is not None:
        yield from template_rows(template, model)
    if model.is_dir() and not (model / "generation_config.json").is_file():
        yield Row(
            "generation_config.json",
            "WARN",
            f"not in {model}",
            "in the checkpoint's folder",
            "Download it: without it vLLM samples with its own defaults instead of the model's.",
            "generation-config",
        )


def template_rows(template: Path, model: Path) -> Iterator[Row]:
    """A template of the checkpoint, or one that switches thinking off by an empty block, harms long answers."""
    cure = "Unset CHAT_TEMPLATE: the image's template maps thinking off to a low effort."
    if not template.is_file():
        return
    if template.resolve().parent == model.resolve():
        yield Row("CHAT_TEMPLATE", "WARN", "the checkpoint's own", "the image's", cure, "chat-template")
    if closes_empty_think(template.read_text(errors="replace")):
        seen = "closes an empty think block"
        yield Row("CHAT_TEMPLATE", "WARN", seen, "an open <think> at the end of every prompt", cure, "chat-template")


def closes_empty_think(text: str) -> bool:
    """Whether the generation prompt of a template can end in an empty, closed think block."""
    tail = text[text.rfind("add_generation_prompt") :] if "add_generation_prompt" in text else ""
    compact = re.sub(r"\s|\\n", "", tail)
    return "<think></think>" in compact or "'<think>'~'</think>'" in compact
