"""The model always thinks; the parser must always split the thinking off."""

from __future__ import annotations

from image.patches.expect import RECIPE, needed
from image.patching import Edit, Patch, Variant

FILE = "vllm/parser/glm47_moe.py"

PATCH = Patch(
    name="reasoning-always-parsed",
    title="split <think> off whatever the request says about thinking",
    why="with thinking off the prompt still opens <think>, and the trace would land in the answer",
    upstream="0.32.0 ignores the switch only for templates without the words enable_thinking (read)",
    origin=RECIPE,
    variants=(
        Variant(
            "0.30.0-0.33.0",
            (
                Edit(
                    FILE,
                    "Glm47MoeParser.__init__",
                    '        chat_kwargs = kwargs.get("chat_template_kwargs", {}) or {}\n',
                    "        # glm53: this model has no mode without thinking, so no request can switch the split off\n"
                    "        chat_kwargs = {\n"
                    '            **(kwargs.get("chat_template_kwargs", {}) or {}),\n'
                    '            "thinking": None,\n'
                    '            "enable_thinking": None,\n'
                    "        }\n",
                ),
            ),
        ),
    ),
    expected=needed(),
)
