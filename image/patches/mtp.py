"""The MTP layer of the NVFP4 checkpoint is BF16, and its config.json does not say so."""

from __future__ import annotations

from image.patches.expect import RECIPE, needed
from image.patching import Addition, Edit, Patch, Variant


def _variant(label: str, file: str) -> Variant:
    edit = Edit(
        file,
        "Glm5NextMultiTokenPredictorLayer.__init__",
        "        assert vllm_config.speculative_config is not None\n",
        "        assert vllm_config.speculative_config is not None\n"
        "        # glm53: leave this layer unquantised where the checkpoint stores no scales for it\n"
        "        from vllm.glm53_mtp_bf16 import exclude_unquantised\n"
        "\n"
        "        exclude_unquantised(vllm_config, prefix)\n",
    )
    return Variant(label, (edit,), (Addition("vllm/glm53_mtp_bf16.py", "payload/glm53_mtp_bf16.py"),))


PATCH = Patch(
    name="mtp-bf16",
    title="load the BF16 MTP layer of an NVFP4 checkpoint",
    why="the layer is built as packed FP4 and dies on its own BF16 weights (256 against 512 columns at TP=4)",
    upstream="nothing in 0.30.0-0.33.0 reads the scales of layer 45 (read)",
    origin=RECIPE,
    variants=(
        _variant("0.31.0-0.33.0", "vllm/models/glm5next/common/mtp.py"),
        _variant("0.30.0", "vllm/models/glm5next/nvidia/mtp.py"),
    ),
    expected=needed(),
)
