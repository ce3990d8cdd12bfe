"""What the image says before vLLM is started: refusals stop the start, rows stand with the others of preflight."""

from __future__ import annotations

import filecmp
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.refusal import Refusal
from core.row import Row
from preflight.checks.scene import link_to

PLUGIN_GROUP = "vllm.general_plugins"
SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"
INPUT_SCALE = "VLLM_GLM53_MOE_INPUT_SCALE"
ASK_S = 10.0
# Run by the engine's Python: the part of the module's name before the first dot is looked for, nothing is imported.
ASK = """
import json, sys
from importlib.metadata import entry_points
from importlib.util import find_spec
points = entry_points(group=sys.argv[1])
print(json.dumps({point.name: find_spec(point.module.split(".")[0]) is not None for point in points}))
"""


def wants_plugin(environ: Mapping[str, str]) -> bool:
    """Whether the attention switch is on; what the patched vLLM reads the same way."""
    return environ.get(SWITCH, "").lower() not in ("", "0", "false")


def plugins(python: str, pythonpath: str) -> dict[str, bool]:
    """Name -> whether its module can be found, of every vLLM plugin that the engine's Python sees. Imports none.

    Takes as long as a Python takes to start. Raises Refusal when that Python does not answer.
    """
    environ = {**os.environ, "PYTHONPATH": pythonpath, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            [python, "-c", ASK, PLUGIN_GROUP], capture_output=True, text=True, timeout=ASK_S, env=environ, check=False
        )
        found: dict[str, bool] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        seen = f"{python} does not list its packages: {error}"
        raise Refusal(SWITCH, seen, "the Python that has vLLM and the plugin", f"Unset {SWITCH}.") from None
    return found


def plugin_refusals(environ: Mapping[str, str], found: Mapping[str, bool]) -> Iterator[Refusal]:
    """The plugin switch without a plugin that vLLM would load: vLLM refuses it after minutes, this at once."""
    loaded = {name: there for name, there in found.items() if name in environ.get("VLLM_PLUGINS", name).split(",")}
    if any(loaded.values()):
        return
    if loaded:
        seen = f"set, and the module of {', '.join(loaded)} cannot be found"
    elif found:
        seen = f"set, and VLLM_PLUGINS leaves out {', '.join(found)}"
    else:
        seen = "set, and no vLLM plugin is installed"
    cure = f"Install the plugin where vLLM's Python finds it (compose/ext.yaml: docs/rebasing.md), or unset {SWITCH}."
    yield Refusal(SWITCH, seen, "a plugin that registers the backend", cure)


def template_refusals(text: str) -> Iterator[Refusal]:
    """A template that is not there: vLLM says so once the weights are loaded."""
    if text and not {"{", "\n"} & set(text) and not Path(text).is_file():
        cure = "Mount it there (a file of your own, ./glm53 -f), or unset CHAT_TEMPLATE: the image has a good one."
        yield Refusal("CHAT_TEMPLATE", f"{text} is not a file", "a template in the container", cure)


def rows(environ: Mapping[str, str], model: Path, template: Path | None) -> Iterator[Row]:
    """Warnings about a knob nobody here reads, the template, and the checkpoint's generation settings."""
    if environ.get(INPUT_SCALE):
        seen = f"{INPUT_SCALE}={environ[INPUT_SCALE]}"
        yield _warning("attention plugin", seen, "unset", "Unset it: only an outside plugin reads it, not this kit.")
    if template is not None:
        yield from template_rows(template, model)
    if model.is_dir() and not (model / "generation_config.json").is_file():
        cure = "Download it: without it vLLM samples with its own defaults instead of the model's."
        yield _warning("generation settings", f"no generation_config.json in {model}", "the checkpoint's", cure)


def template_rows(template: Path, model: Path) -> Iterator[Row]:
    """A template of the checkpoint, or one that switches thinking off by an empty block, harms long answers."""
    cure = "Unset CHAT_TEMPLATE: the image's template maps thinking off to a low effort."
    if not template.is_file():
        return
    # By content too: Hugging Face's cache links its files, and people copy them.
    if any(filecmp.cmp(template, own, shallow=False) for own in model.glob("*.jinja")):
        yield _warning("chat template", f"{template} is the checkpoint's own", "the image's", cure)
    if closes_empty_think(template.read_text(errors="replace")):
        seen = f"{template} closes an empty think block"
        yield _warning("chat template", seen, "an open <think> at the end of every prompt", cure)


def _warning(name: str, seen: str, expected: str, cure: str) -> Row:
    return Row(name, "WARN", seen, expected, cure, link_to(name))


def closes_empty_think(text: str) -> bool:
    """Whether the generation prompt of a template can end in an empty, closed think block."""
    tail = text[text.rfind("add_generation_prompt") :] if "add_generation_prompt" in text else ""
    compact = re.sub(r"\s|\\n", "", tail)
    return "<think></think>" in compact or "'<think>'~'</think>'" in compact
