"""vLLM's argv from the plan: a table of flags a profile, one line a flag. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from core.plan import BoxPlan, GroupPlan
from core.refusal import Refusal
from entrypoint.serve.environment import KIT_ROOT
from entrypoint.serve.speculation import Speculation, speculation

# Flags that follow from the plan: a second one in EXTRA_ARGS would win silently, on one box or on all.
OWN_FLAGS = {
    "--host": "API_PORT is the door's; vLLM listens behind it",
    "--port": "set API_PORT",
    "--nnodes": "set TP",
    "--node-rank": "the election sets it",
    "--master-addr": "the election sets it",
    "--master-port": "set PORT_RANGE",
    "--headless": "the election sets it",
    "--tensor-parallel-size": "set TP",
    "-tp": "set TP",
    "--distributed-executor-backend": "set EXECUTOR",
    "--speculative-config": "set SPEC_METHOD and SPEC_EXTRA",
    "-sc": "set SPEC_METHOD and SPEC_EXTRA",
    "--served-model-name": "set SERVED_NAME",
    "--api-key": "set API_KEY_FILE: arguments can be read by every process of the box",
    "--model": "set MODEL_DIR",
    "--enable-sleep-mode": "reported to kill the engine or the box on shared memory",
}

# The kit's watch asks for these every second: logged, its questions would be all that the log's last lines hold.
UNLOGGED = "/metrics,/health"
# Knob name -> flag, for values that are passed as they are and left out when the plan has none.
COMMON_VALUES = {
    "MAX_MODEL_LEN": "--max-model-len",
    "MAX_NUM_SEQS": "--max-num-seqs",
    "MAX_NUM_BATCHED_TOKENS": "--max-num-batched-tokens",
    "GPU_MEM_UTIL": "--gpu-memory-utilization",
    "MAX_LOGPROBS": "--max-logprobs",
}
GB10_VALUES = {
    "KV_CACHE_MEMORY": "--kv-cache-memory-bytes",
    "KV_CACHE_DTYPE": "--kv-cache-dtype",
    "BLOCK_SIZE": "--block-size",
    "LONG_PREFILL_TOKEN_THRESHOLD": "--long-prefill-token-threshold",
    "MOE_BACKEND": "--moe-backend",
    "TOPK_BACKEND": "--sparse-indexer-topk-backend",
    "SAFETENSORS_LOAD_STRATEGY": "--safetensors-load-strategy",
    "REASONING_PARSER": "--reasoning-parser",
    "TOOL_PARSER": "--tool-call-parser",
    "CHAT_TEMPLATE": "--chat-template",
}
# Tool parsers that vLLM does not have and the kit brings: the file that registers each.
KIT_PARSERS = {"glm47_failclosed": str(KIT_ROOT / "image/parsers/glm47_failclosed.py")}
# The checkpoint's own template is text-only and closes an empty think block, which this model was never taught.
KIT_TEMPLATE = str(KIT_ROOT / "image/chat-template.jinja")
# TP sizes that do not divide the vision tower's 16 heads.
VISION_DATA_PARALLEL = (3, 6)


def planned_speculation(group: GroupPlan) -> Speculation:
    """The plan's speculation; the lab's tiny model has none. Raises Refusal."""
    if group.profile == "lab-cpu":
        return Speculation("none", 0, {})
    chosen = "SPEC_METHOD" in group.values and group.values["SPEC_METHOD"].source != "default"
    return speculation(
        str(group.get("SPEC_METHOD", "dflash")),
        group.get("SPEC_TOKENS"),
        bool(group.get("MTP", False)),
        group.get("SPEC_EXTRA"),
        chosen,
    )


def extra_arguments(text: str) -> tuple[str, ...]:
    """EXTRA_ARGS as words. Raises Refusal for a flag that the kit sets itself."""
    words = tuple(shlex.split(text))
    for word in words:
        flag = word.split("=", 1)[0]
        reason = OWN_FLAGS.get(flag.replace("_", "-"))
        if reason is not None:
            raise Refusal(
                "EXTRA_ARGS", flag, "flags that the kit does not set itself", f"{reason[0].upper()}{reason[1:]}."
            )
    return words


def arguments(group: GroupPlan, box: BoxPlan) -> tuple[str, ...]:
    """What follows `vllm serve`: the model, then flags. Raises Refusal."""
    return (
        box.paths["model"],
        "--served-model-name",
        str(group.get("SERVED_NAME", "glm53")),
        *_placement(group, box),
        *_values(COMMON_VALUES, group),
        *PROFILES[group.profile](group, box),
        *extra_arguments(str(group.get("EXTRA_ARGS") or "")),
    )


def _placement(group: GroupPlan, box: BoxPlan) -> tuple[str, ...]:
    flags = ["--tensor-parallel-size", str(group.tp)]
    if group.tp > 1:
        flags += ["--distributed-executor-backend", "mp", "--nnodes", str(box.world_size), "--node-rank", str(box.rank)]
        flags += ["--master-addr", box.master_address, "--master-port", str(box.master_port)]
    if box.rank == 0:
        # Behind the door: nobody but this box's kit reaches vLLM itself.
        flags += ["--host", "127.0.0.1", "--port", str(box.api_port), "--disable-access-log-for-endpoints", UNLOGGED]
    else:
        flags += ["--headless"]
    return tuple(flags)


def _values(table: Mapping[str, str], group: GroupPlan) -> tuple[str, ...]:
    words: list[str] = []
    for knob, flag in table.items():
        value = group.get(knob)
        if value is not None and value != "":
            words += [flag, str(value)]
    return tuple(words)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _gb10(group: GroupPlan, box: BoxPlan) -> tuple[str, ...]:
    words = [*_values(GB10_VALUES, group), "--enable-auto-tool-choice"]
    if not group.get("CHAT_TEMPLATE"):
        words += ["--chat-template", KIT_TEMPLATE]
    plugin = group.get("TOOL_PARSER_PLUGIN") or KIT_PARSERS.get(str(group.get("TOOL_PARSER")))
    if plugin:
        words += ["--tool-parser-plugin", str(plugin)]
    if group.get("LIMIT_MM") is not None:
        words += ["--limit-mm-per-prompt", _compact(group["LIMIT_MM"])]
    if group.tp in VISION_DATA_PARALLEL:
        words += ["--mm-encoder-tp-mode", "data"]
    if group.get("SKIP_MM_PROFILING"):
        words += ["--skip-mm-profiling"]
    if group.get("ITERATION_DETAILS"):
        words += ["--enable-logging-iteration-details"]
    config = planned_speculation(group).config(box.paths.get("drafter", ""))
    if config is not None:
        words += ["--speculative-config", _compact(config)]
    return (*words, *_graphs(group))


def _graphs(group: GroupPlan) -> tuple[str, ...]:
    if group.get("CUDA_GRAPHS", True) is False:
        return ("--enforce-eager",)
    words: list[str] = []
    sizes = group.get("CUDAGRAPH_CAPTURE_SIZES")
    if sizes:
        words += ["--cudagraph-capture-sizes", *str(sizes).split(",")]
    elif group.get("CUDAGRAPH_MAX") is not None:
        words += ["--max-cudagraph-capture-size", str(group["CUDAGRAPH_MAX"])]
    if group.get("CUDAGRAPH_MODE"):
        words += ["--compilation-config", _compact({"cudagraph_mode": group["CUDAGRAPH_MODE"]})]
    return tuple(words)


def _lab_cpu(group: GroupPlan, box: BoxPlan) -> tuple[str, ...]:
    del group, box
    return ("--enforce-eager",)


PROFILES: Mapping[str, Callable[[GroupPlan, BoxPlan], tuple[str, ...]]] = {"gb10": _gb10, "lab-cpu": _lab_cpu}
