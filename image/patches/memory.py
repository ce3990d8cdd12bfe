"""A cap and a trace for the worker's GPU memory, which on a GB10 is the box's memory."""

from __future__ import annotations

from image.patches.expect import RECIPE, needed
from image.patching import Addition, Edit, Patch, Variant

PATCH = Patch(
    name="worker-memory-cap",
    title="cap torch's share of the memory, record what it holds",
    why="a runaway allocation takes a unified-memory box down; capped, it is one failed request",
    upstream="no per-process fraction is set anywhere in 0.30.0-0.33.0 (read)",
    origin=RECIPE,
    variants=(
        Variant(
            "0.30.0-0.33.0",
            (
                Edit(
                    "vllm/v1/worker/gpu_worker.py",
                    "Worker.init_device",
                    "            torch.accelerator.set_device_index(self.device)\n",
                    "            torch.accelerator.set_device_index(self.device)\n"
                    "            # glm53: TORCH_MEM_FRACTION, TORCH_MEM_TRACE_DIR, TORCH_MEM_STATS_DIR\n"
                    "            from vllm.glm53_memory import arm\n"
                    "\n"
                    "            arm(self.device, self.rank)\n",
                ),
            ),
            (Addition("vllm/glm53_memory.py", "payload/glm53_memory.py"),),
        ),
    ),
    expected=needed(),
)
