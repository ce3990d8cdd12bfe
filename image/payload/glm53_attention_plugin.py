"""VLLM_GLM53_CUDA_SPARSE_MLA: capability 12 uses the backend that an outside plugin registered.

Installed into the vllm package by the patch `attention-plugin-switch`.
"""

from __future__ import annotations

import os

NAME = "VLLM_GLM53_CUDA_SPARSE_MLA"


def wanted() -> bool:
    """Whether the SM120 slot is to be used. Raises RuntimeError when no plugin has taken that slot."""
    if os.environ.get(NAME, "").lower() in ("", "0", "false"):
        return False
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    if not AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120.is_overridden():
        raise RuntimeError(
            f"{NAME} is set, but no vLLM plugin has registered a backend for FLASHINFER_MLA_SPARSE_SM120; "
            f"the stock one needs a 64-wide rope part and dies after the weight load. Install the plugin where "
            f"vLLM finds it (entry point group vllm.general_plugins), or unset {NAME}."
        )
    return True
