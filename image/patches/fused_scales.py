"""One global scale for a fused gate/up pair, reconciled instead of dropped."""

from __future__ import annotations

from image.patches.expect import needed
from image.patching import Addition, Edit, Patch, Variant

PATCH = Patch(
    name="w13-global-scales",
    title="reconcile the gate's and the up projection's global scales per expert",
    why="stock keeps the gate's and warns; where they differ (reported: 179 of 288 experts by about 1.4x) the up "
    "projection is mis-scaled",
    upstream="0.30.0-0.33.0 keep the first and warn (read)",
    origin="ours",
    variants=(
        Variant(
            "0.30.0-0.33.0",
            (
                Edit(
                    "vllm/model_executor/layers/quantization/modelopt.py",
                    "ModelOptNvFp4FusedMoE.process_weights_after_loading",
                    "        # Use a single gscale for w13.\n",
                    "        # glm53: give both halves the larger global scale; W13_RECONCILE=0 leaves them\n"
                    "        from vllm.glm53_fused_scales import reconcile\n"
                    "\n"
                    "        reconcile(layer, self.moe.is_act_and_mul)\n"
                    "\n"
                    "        # Use a single gscale for w13.\n",
                ),
            ),
            (Addition("vllm/glm53_fused_scales.py", "payload/glm53_fused_scales.py"),),
        ),
    ),
    expected=needed(),
)
