"""Hook of head_gate: the fp32 product in the indexer's forward, edited in memory."""

from __future__ import annotations

from experimental.edit import edit, when_imported
from experimental.head_gate.launch import head_gate

EDITS = (
    (
        """    if self._wp_fp32 is None:
        self._wp_fp32 = (
            self.wk_weights_proj.weight.data[self.head_dim :, :]
            .t()
            .contiguous()
            .float()
        )
    weights = torch.mm(hidden_states.float(), self._wp_fp32)
""",
        """    weights = _glm53_head_gate(hidden_states, self.wk_weights_proj.weight[self.head_dim :])
""",
    ),
)


def register() -> None:
    """Edit Indexer.forward when its module is imported."""
    when_imported(
        "vllm.models.glm5next.common.attention",
        lambda module: edit(module.Indexer.forward, EDITS, {"_glm53_head_gate": head_gate}),
    )
