"""The patches of the image, one module a subject; PATCHES is the order of the table people read.
Edits hold the place and a call; what has logic lies as plain Python under image/payload/ and is installed beside it.
"""

from __future__ import annotations

from image.patches import (
    attention,
    aux_hidden,
    draft_kv,
    fused_scales,
    memory,
    mtp,
    reasoning,
    routed_experts,
    sm121,
    spin_wait,
    tail_ring,
    topk,
)
from image.patching import Patch

PATCHES: tuple[Patch, ...] = (
    *sm121.PATCHES,
    *attention.PATCHES,
    mtp.PATCH,
    aux_hidden.PATCH,
    draft_kv.PATCH,
    routed_experts.PATCH,
    tail_ring.PATCH,
    reasoning.PATCH,
    spin_wait.PATCH,
    memory.PATCH,
    fused_scales.PATCH,
    topk.PATCH,
)
