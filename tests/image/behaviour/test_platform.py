"""Which attention backend capability 12 gets, the switch for an outside plugin, and no dependent launch."""

from typing import Any

import pytest
import torch
from vllm.platforms import cuda
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backends.mla.flashinfer_mla_sparse_sm90 import FlashInferMLASparseSM90Backend
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

SWITCH = "VLLM_GLM53_CUDA_SPARSE_MLA"


def priorities(major: int, minor: int = 0) -> list[str]:
    bare = getattr(cuda._get_backend_priorities, "__wrapped__", cuda._get_backend_priorities)
    return [backend.name for backend in bare(True, DeviceCapability(major, minor), head_size=512)]


def test_capability_12_is_offered_the_sm90_backend_before_sm120(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    offered = priorities(12, 1)
    assert offered.index("FLASHINFER_MLA_SPARSE_SM90") < offered.index("FLASHINFER_MLA_SPARSE_SM120")


def test_the_switch_is_refused_without_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(RuntimeError, match=f"{SWITCH} is set, but no vLLM plugin"):
        priorities(12, 1)


def test_the_switch_leaves_the_slot_to_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    slot = AttentionBackendEnum.FLASHINFER_MLA_SPARSE_SM120
    register_backend(slot, "somebody.elses.Backend")
    try:
        assert priorities(12, 1) == ["TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"]
        assert "FLASHINFER_MLA_SPARSE_SM90" in priorities(9)
    finally:
        slot.clear_override()


def test_other_capabilities_see_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert "FLASHINFER_MLA_SPARSE_SM90" in priorities(9)
    assert "FLASHINFER_MLA_SPARSE_SM90" not in priorities(10)


@pytest.mark.parametrize(("major", "takes"), [(8, False), (9, True), (10, False), (12, True)])
def test_the_sm90_backend_takes_capability_12(major: int, takes: bool) -> None:
    assert FlashInferMLASparseSM90Backend.supports_compute_capability(DeviceCapability(major, 0)) is takes


@pytest.mark.parametrize(("major", "launches"), [(8, False), (9, True), (10, True), (12, False)])
def test_dependent_launch_stops_at_capability_12(major: int, launches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    asked = cuda.CudaPlatformBase.is_arch_support_pdl
    getattr(asked.__func__, "cache_clear", lambda: None)()  # 0.33.0 remembers the answer
    assert asked() is launches


@pytest.mark.parametrize(("cache", "refused"), [("fp8_e4m3", True), ("bfloat16", False), ("auto", False)])
def test_only_fp8_caches_need_the_newer_flashinfer(cache: Any, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.config
    from vllm.v1.attention.backends.mla import flashinfer_mla_sparse_sm90 as module

    monkeypatch.setattr(module, "has_flashinfer_sm90_nope_mla", lambda: False)
    monkeypatch.setattr(vllm.config, "get_current_vllm_config", lambda: type("C", (), {"model_config": None})())
    reason = FlashInferMLASparseSM90Backend.supports_combination(
        head_size=512, dtype=torch.bfloat16, kv_cache_dtype=cache, block_size=64, use_mla=True, has_sink=False,
        use_sparse=True, use_mm_prefix=False, device_capability=DeviceCapability(12, 1),
    )  # fmt: skip
    assert (reason is not None) is refused
