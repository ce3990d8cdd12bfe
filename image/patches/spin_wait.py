"""How long a rank spins on the shared-memory broadcast after a message."""

from __future__ import annotations

from image.patches.expect import RECIPE, needed
from image.patching import Edit, Patch, Variant

PATCH = Patch(
    name="spin-wait",
    title="spin 2 ms after a message instead of 1 s",
    why="CPU and GPU of a GB10 share power: spinning heats it and slows decoding (reported 66.9 to 70.6 tok/s)",
    upstream="the default is 1 s and no knob in 0.30.0-0.33.0 (read)",
    origin=RECIPE,
    variants=(
        Variant(
            "0.30.0-0.33.0",
            (
                Edit(
                    "vllm/distributed/device_communicators/shm_broadcast.py",
                    "SpinCondition.__init__",
                    "        busy_loop_s: float = 1,\n",
                    "        busy_loop_s: float = 0.002,  # glm53: was 1; 0 was reported slower than 0.002\n",
                ),
            ),
        ),
    ),
    expected=needed(),
)
