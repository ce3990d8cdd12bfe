"""What stops a start before vLLM is launched: a switch without its plugin, a template that is not there.

What is only worth a warning is preflight's (preflight/checks/answers.py)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.refusal import Refusal
from preflight.facts.template import inline

PLUGIN_GROUP = "vllm.general_plugins"
SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"
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
    if text and not inline(text) and not Path(text).is_file():
        cure = "Mount it there (a file of your own, ./glm53 -f), or unset CHAT_TEMPLATE: the image has a good one."
        yield Refusal("CHAT_TEMPLATE", f"{text} is not a file", "a template in the container", cure)
