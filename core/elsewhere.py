"""Names that other kits for this model read and this one does not: what to set instead, or why there is nothing.

Who comes from the original recipe has them in a .env. A name that is silently ignored is worse than a refusal, so the
check of compose/.env (core/lint.py) answers with the line below. A knob of the same name wins: its line here is idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["renamed", "overlay", "absent", "fixed", "foreign"]
# What a name is, as a refusal tells it.
KINDS: dict[Kind, str] = {
    "renamed": "a name of the original recipe",
    "overlay": "the original recipe's switch of an overlay",
    "absent": "a name of the original recipe, for something this kit does not have",
    "fixed": "a value that the kit works out itself",
    "foreign": "another program's variable, which no compose file passes on",
}
# What one does for an engine variable that the kit has no opinion on.
OWN_FILE = "put it under environment: of a file of your own: ./glm53 -f my.yaml up -d"


@dataclass(frozen=True)
class Elsewhere:
    """`name`, or a beginning of names when it ends with *; `cure` says what to do instead, as an order."""

    name: str
    kind: Kind
    cure: str

    def covers(self, name: str) -> bool:
        """True when this line is about `name`."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


def _overlay(old: str, name: str, setting: str = "") -> Elsewhere:
    new = f"GLM53_OVERLAY_{name.upper()}{setting}"
    off = "" if setting else f" (0 is ./glm53 --without {name})"
    return Elsewhere(old, "overlay", f"set {new}{off}")


def _absent(old: str, cure: str) -> Elsewhere:
    return Elsewhere(old, "absent", cure)


# Looked through in order: a longer name stands before the beginning that covers it.
ELSEWHERE: tuple[Elsewhere, ...] = (
    # Switches of overlays that exist here under the kit's own name.
    _overlay("VLLM_DENSE_FP8", "dense_fp8"),
    _overlay("VLLM_DENSE_FP8_LM_HEAD", "dense_fp8", "_LM_HEAD"),
    _overlay("VLLM_MEGAMOE", "moe_decode"),
    _overlay("VLLM_MEGAMOE_MAX_TOKENS", "moe_decode", "_MAX_TOKENS"),
    _overlay("VLLM_TRITON_SPARSE_MLA", "sparse_mla"),
    Elsewhere("VLLM_DENSE_W4", "overlay", "start with ./glm53 --with dense_w4, and set GLM53_OVERLAY_DENSE_W4_PATTERN"),
    # Switches of overlays that do not.
    _absent("VLLM_MEGAMOE_VARIANT", "remove it: the kernel's variant follows from the shape"),
    _absent("VLLM_MEGADENSE4_SRC", "remove it: no kernel is compiled from a folder of sources"),
    _absent("VLLM_DENSE_NVFP4_SIM*", "remove it: the diagnosis is not part of the kit"),
    _absent("VLLM_MOE_PREFILL*", "remove it: long steps run vLLM's own CUTLASS kernels"),
    _absent("VLLM_GLM5NEXT_RECOVERSSM", "remove it: MAX_NUM_SEQS is sized for what is mounted"),
    _absent("VLLM_GLM5NEXT_DRAFT_*", "remove it: from vLLM 0.32 on the drafter's pages cost no pool (docs/sizing.md)"),
    _absent("VLLM_GLM_SP_*", "remove it: every rank runs a prefill's whole tokens"),
    _absent("VLLM_GLM_ARX_*", "remove it: NCCL carries the collectives"),
    _absent("VLLM_ARX*", "remove it: NCCL carries the collectives"),
    _absent("ARX_*", "remove it: NCCL carries the collectives"),
    _absent("VLLM_NCCL_DECODE_PROTO", "remove it: NCCL chooses its protocol"),
    _absent("VLLM_ADAPTIVE_K_*", "remove it: VLLM_ADAPTIVE_K_MODEL alone is planned, for an overlay of your own"),
    _absent("VLLM_DRAFT_TRUNC_*", "remove it: drafts are verified whole"),
    _absent("VLLM_MHC_FUSED_MAX_TOKENS", "remove it: the residual streams run vLLM's own kernels"),
    _absent("VLLM_WEIGHT_SNAPSHOT_*", "remove it: every boot loads the checkpoint itself"),
    # Memory, ranks, fabric.
    Elsewhere("KV_EXTRA_MEMORY", "renamed", "add it to KV_CACHE_MEMORY, when the host does lend its display's memory"),
    Elsewhere("FABRIC_CHECK_PORT", "fixed", "set PORT_RANGE: each generation's check takes a fresh port from it"),
    Elsewhere("WORKER_WAIT_S", "absent", "remove it: a box waits for the others as long as it takes"),
    Elsewhere("FABRIC_RING_GRAPH", "renamed", "set TP=RING3 or TP=RING4, or TOPOLOGY"),
    Elsewhere("MENTAT_FABRIC_*", "renamed", "set TP=RING3 or TP=RING4, or FABRIC_SUBNETS"),
    Elsewhere("FABRIC_IP", "renamed", "set FABRIC_SUBNETS or CLUSTER_SUBNET"),
    Elsewhere("NODE_IP", "renamed", "set LAN_ADDRESS"),
    Elsewhere("GLOO_SOCKET_IFNAME", "fixed", "set CLUSTER_SUBNET: the interface follows from it"),
    Elsewhere("NCCL_SOCKET_IFNAME", "fixed", "set CLUSTER_SUBNET: the interface follows from it"),
    *(
        Elsewhere(name, "fixed", "set TOPOLOGY: it follows from how the boxes are cabled")
        for name in (
            "NCCL_ALGO",
            "NCCL_GRAPH_FILE",
            "NCCL_IB_SUBNET_AWARE_ROUTING",
            "NCCL_CROSS_NIC",
            "NCCL_IB_MERGE_NICS",
        )
    ),
    # The page.
    Elsewhere("PORT", "renamed", "set API_PORT"),
    Elsewhere("CONTAINER_NAME", "fixed", "remove it: the container is called glm53"),
    Elsewhere("STAGE_FILE", "absent", "remove it: the page and the boot are one process"),
    Elsewhere("STAGES", "absent", "remove it: the stages are those of entrypoint/__main__.py"),
    Elsewhere("SERVING_WHEN_READY", "renamed", "set SELF_TEST=0"),
    Elsewhere("PEER_POLL_S", "absent", "remove it: boxes tell each other when something changes"),
    Elsewhere("PEER_TIMEOUT_S", "absent", "remove it: how long a silent box is waited for is the group protocol's own"),
    Elsewhere("THROUGHPUT_INTERVAL_S", "absent", "remove it: the page's pace is fixed"),
    Elsewhere("HOST_SAMPLE_S", "absent", "remove it: the page's pace is fixed"),
    Elsewhere("CACHE_ACTIVE_WINDOW_S", "absent", "remove it: the page's pace is fixed"),
    Elsewhere("MCP_LOG_DIR", "renamed", "set LOG_DIR"),
    Elsewhere("MCP_LOG_MAX_BYTES", "absent", "remove it: answers are cut at a fixed size"),
    Elsewhere("SEARCH_MAX_BYTES", "absent", "remove it: answers are cut at a fixed size"),
    Elsewhere("ENABLE_RAY_TOOL", "absent", "remove it: there is no Ray here"),
    Elsewhere("RAY_DASHBOARD", "absent", "remove it: there is no Ray here"),
    Elsewhere("AGENT_URL", "absent", "remove it: no agent of the host is told"),
    # Membership: mentat's daemon and router have files of their own.
    Elsewhere("MENTAT_GROUP", "renamed", "set GROUP_NAME"),
    Elsewhere("MENTAT_PEERS", "renamed", "set PEERS; for mentatd itself, in mentat's own .env"),
    Elsewhere("MENTAT_SECRET*", "renamed", "set GROUP_SECRET; for mentatd itself, in mentat's own .env"),
    Elsewhere("MENTAT_NODE_IP", "renamed", "set LAN_ADDRESS; for mentatd itself, in mentat's own .env"),
    Elsewhere("MENTAT_ANNOUNCE_IFACES", "renamed", "set FABRIC_SUBNETS; for mentatd itself, in mentat's own .env"),
    Elsewhere("MENTAT_*", "foreign", "put it into mentat's own .env: the kit finds its boxes without it"),
    *(
        Elsewhere(name, "foreign", "put it into mentat's own .env")
        for name in ("ALLOWED_SOURCES", "DISCOVER_PEERS", "MODEL_TTL_S", "SERVING_TIMEOUT_S", "SSE_KEEPALIVE_S")
    ),
    Elsewhere("RAY_ADDRESS", "absent", "remove it: there is no Ray here"),
    Elsewhere("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "absent", "remove it: there is no Ray here"),
    # The gate takes options, and a build variables of its shell.
    *(
        Elsewhere(name, "renamed", "give it to ./glm53 gate, as an option of its command line")
        for name in ("GATE_URL", "GATE_MODEL", "QUALITY_DIR", "QUALITY_URL")
    ),
    Elsewhere("RIGMARK_DIR", "absent", "remove it: RigMark is not part of the gate"),
    Elsewhere("GATE_IMAGE", "renamed", "give it to ./glm53 gate humaneval: --set 'humaneval.image=\"NAME\"'"),
    Elsewhere("BASE", "renamed", "give it to the build: BASE=... image/build.sh"),
    Elsewhere("TAG", "renamed", "set IMAGE; for the build: TAG=... image/build.sh"),
    # The engine's own variables that the kit sets, then all others.
    Elsewhere("VLLM_API_KEY", "renamed", "set API_KEY_FILE or API_KEY"),
    *(
        Elsewhere(name, "fixed", "set CACHE_HOME: every cache lies under it")
        for name in (
            "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE",
            "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH",
        )
    ),
    Elsewhere("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "fixed", "set AUTOTUNE_CACHE"),
    Elsewhere("VLLM_NO_USAGE_STATS", "fixed", "remove it: nothing is reported anyway"),
    Elsewhere("HF_HUB_OFFLINE", "fixed", "remove it: the engine never downloads"),
    *(
        Elsewhere(f"{start}_*", "foreign", OWN_FILE)
        for start in (
            "VLLM", "NCCL", "GLOO", "TORCH", "PYTORCH", "TRITON", "FLASHINFER", "TILELANG", "OMP", "CUDA", "NVIDIA",
        )
    ),
)  # fmt: skip


def elsewhere(name: str) -> Elsewhere | None:
    """The line about `name`, or None for a name nobody knows."""
    return next((line for line in ELSEWHERE if line.covers(name)), None)


def switch_of_the_original(name: str) -> Elsewhere | None:
    """The line about `name` when it would have turned an overlay on or off: ignored in silence it changes answers."""
    line = elsewhere(name)
    return line if line and line.kind in ("overlay", "absent") and name.startswith(("VLLM_", "ARX_")) else None
