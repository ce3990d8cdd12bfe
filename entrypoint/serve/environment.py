"""The engine's whole environment: built from the plan, never inherited. Pure.

Three layers, later ones win: what a process of this kind needs of the caller's environment, what the plan
says, what the box's own part says. Empty variables are dropped: NCCL reads an empty GID index as 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from core.plan import BoxPlan, GroupPlan, Value
from experimental.overlays import CONTAINER as OVERLAYS

# Names taken over from the caller: the process basics, and what overlays and the engine's libraries read.
KEPT_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "CPATH",
    "CUDA_HOME",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
    "VLLM_API_KEY",
    "W13_RECONCILE",
)
KEPT_PREFIXES = (
    "LC_",
    "CUDA_",
    "NVIDIA_",
    "VLLM_",
    "NCCL_",
    "GLOO_",
    "TORCH_",
    "PYTORCH_",
    "TRITON_",
    "FLASHINFER_",
    "TILELANG_",
    "HF_",
    "OMP_",
    "GLM47_",
    "GLM53_OVERLAY",
)
SECRETS = ("VLLM_API_KEY",)
OVERLAY_SETTING = "GLM53_OVERLAY_"

# Knobs that vLLM, torch or NCCL read under their own name.
PASSED_KNOBS = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "MAX_JOBS",
    "TORCH_MEM_FRACTION",
    "TORCH_MEM_STATS_INTERVAL",
    "NCCL_MAX_NCHANNELS",
    "NCCL_DEBUG",
    "VLLM_ENGINE_READY_TIMEOUT_S",
    "VLLM_ADAPTIVE_K_MODEL",
)
# Those that take whole numbers only: a knob in seconds is a float here.
WHOLE = ("VLLM_ENGINE_READY_TIMEOUT_S", "TORCH_MEM_STATS_INTERVAL")

AUTOTUNE_DIR = "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"
OF_ONE_BOOT = "autotune-of-one-boot"  # the folder's name when the results are to be forgotten

KIT_ROOT = Path(__file__).parents[2]


def environment(group: GroupPlan, box: BoxPlan, base_env: Mapping[str, str]) -> dict[str, str]:
    """The child's environment. The API key travels as VLLM_API_KEY of `base_env`, never in argv."""
    kept = {name: value for name, value in base_env.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)}
    kept["PYTHONPATH"] = with_overlays(without_kit(kept.get("PYTHONPATH", "")), base_env)
    planned = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # the working folder is nobody's package
        "VLLM_HOST_IP": box.engine_address,
        "GLOO_SOCKET_IFNAME": box.socket_ifname,
        "NCCL_SOCKET_IFNAME": box.socket_ifname,
        **PROFILES[group.profile](group, box),
    }
    result = {**kept, **planned, **box.nccl}
    return {name: value for name, value in sorted(result.items()) if value != ""}


def overlay_settings(environ: Mapping[str, str]) -> dict[str, Value]:
    """What the overlays' own variables say, for the group plan: ranks with other settings would hold other weights.

    Their compose files set every one of them on each box, so only a value of somebody's own can differ.
    """
    found = {name: text for name, text in sorted(environ.items()) if name.startswith(OVERLAY_SETTING) and text}
    return {name: Value(text, "overlay") for name, text in found.items()}


def without_kit(pythonpath: str) -> str:
    """PYTHONPATH without the kit's own folder: its rooms are named `image`, `tests`, `client` and must not meet
    vLLM's packages. Other entries (a user's plugin) stay.
    """
    parts = pythonpath.split(os.pathsep)
    return os.pathsep.join(part for part in parts if part and Path(os.path.normpath(part)) != KIT_ROOT)


def with_overlays(pythonpath: str, base_env: Mapping[str, str]) -> str:
    """PYTHONPATH with the mounted overlays in front when any is on: vLLM finds their plugin there."""
    if not base_env.get("GLM53_OVERLAYS"):
        return pythonpath
    return os.pathsep.join(part for part in (OVERLAYS, pythonpath) if part)


def _gb10(group: GroupPlan, box: BoxPlan) -> dict[str, str]:
    passed = {}
    for name in PASSED_KNOBS:
        value = group.get(name)
        if value is not None:
            passed[name] = str(int(value)) if name in WHOLE else str(value)
    passed["NCCL_IB_HCA"] = ",".join(box.rails)
    keyed = box.paths.get("cache.keyed", box.paths.get("cache", ""))
    if keyed and group.tp > 1:
        fresh = group.get("AUTOTUNE_CACHE", "fresh") == "fresh"
        passed[AUTOTUNE_DIR] = f"{keyed}/{OF_ONE_BOOT if fresh else 'autotune'}"
    return {**passed, **_caches(box.paths)}


def _caches(paths: Mapping[str, str]) -> dict[str, str]:
    """Where compiled kernels are kept, by tier (entrypoint/caches.py); nothing is set without a cache folder."""
    root = paths.get("cache", "")
    if not root:
        return {}
    shared, keyed = paths.get("cache.shared", root), paths.get("cache.keyed", root)
    return {
        "VLLM_CACHE_ROOT": f"{keyed}/vllm",
        "TRITON_CACHE_DIR": f"{shared}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{keyed}/inductor",
        "FLASHINFER_WORKSPACE_BASE": f"{shared}/flashinfer",
        "TILELANG_CACHE_DIR": f"{shared}/tilelang",
        "CUDA_CACHE_PATH": f"{shared}/cuda",
        "XDG_CACHE_HOME": f"{shared}/xdg",
    }


def _lab_cpu(group: GroupPlan, box: BoxPlan) -> dict[str, str]:
    # KV_CACHE_MEMORY is whole GiB here: vLLM's CPU back end reads nothing finer.
    gib = max(1, int(group.get("KV_CACHE_MEMORY") or 0) // 1024**3)
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(int(group.get("VLLM_ENGINE_READY_TIMEOUT_S") or 600)),
        **_caches(box.paths),
    }


PROFILES: Mapping[str, Callable[[GroupPlan, BoxPlan], dict[str, str]]] = {"gb10": _gb10, "lab-cpu": _lab_cpu}
