"""The knobs that entrypoint/serve reads: what becomes vLLM's argv and environment, and where it lives on the box."""

from __future__ import annotations

import shlex
from typing import Any

from core.knob import Knob, share

SPEC_METHODS = ("dflash", "mtp", "none")


def _folder(text: str) -> str | None:
    """A folder's name, not a path."""
    return (
        None if text.strip(".") and all(sign.isalnum() or sign in "._-" for sign in text) else "letters, digits, . _ -"
    )


def _words(text: str) -> str | None:
    try:
        shlex.split(text)
    except ValueError as error:
        return f"words as a shell would split them ({error})"
    return None


def _limits(value: dict[str, Any]) -> str | None:
    if all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in value.values()):
        return None
    return 'a JSON object of counts such as {"image":16,"video":0}'


MODEL = (
    Knob("SERVED_NAME", "text", "glm53", "The model name that clients send."),
    Knob("MODEL_DIR", "path", "/models/target", "Where the checkpoint is seen by the engine.", scope="box"),
    Knob("DFLASH_MODEL", "path", "/models/drafter", "Where the DFlash drafter is seen by the engine.", scope="box"),
    Knob(
        "SPEC_METHOD",
        "choice",
        "dflash",
        "How draft tokens are made: the DFlash2 drafter, the checkpoint's own MTP layer, or not at all. "
        "`none` and `mtp` need no drafter (its licence is CC BY-NC-ND, non-commercial).",
        choices=SPEC_METHODS,
        measured="reported: k=7 dflash decodes 109.8 / 88.8 / 52.6 tok/s (structured, code, prose), mtp k=4 "
        "57.2 / 54.4 / 45.6",
    ),
    Knob(
        "SPEC_TOKENS",
        "count",
        None,
        "Draft tokens a step. Derived from SPEC_METHOD: exactly 7 for dflash (what it was trained for), 4 for mtp.",
        unit="tokens",
    ),
    Knob("MTP", "flag", "0", "1 is another spelling of SPEC_METHOD=mtp."),
    Knob(
        "SPEC_EXTRA",
        "json",
        None,
        "Further fields of vLLM's speculative config; may not name method, model or num_speculative_tokens.",
    ),
    Knob(
        "LIMIT_MM",
        "json",
        '{"image":16,"video":0}',
        "The most images and videos of one prompt.",
        check=_limits,
    ),
    Knob(
        "TOOL_PARSER", "text", "glm47", "vLLM's tool-call parser; glm47_failclosed re-offers calls with bad arguments."
    ),
    Knob(
        "TOOL_PARSER_PLUGIN",
        "path",
        None,
        "File that registers TOOL_PARSER when vLLM does not know it.",
    ),
    Knob("REASONING_PARSER", "text", "glm45", "vLLM's parser that splits thinking from the answer."),
    Knob(
        "CHAT_TEMPLATE",
        "path",
        None,
        "Chat template file as seen by the engine; unset takes the image's.",
    ),
    Knob(
        "SKIP_MM_PROFILING",
        "flag",
        "0",
        "1 skips the multimodal memory profile at start; the largest images then come out of the reserve.",
    ),
    Knob("MAX_LOGPROBS", "count", None, "The most log probabilities a request may ask for; vLLM's own default is 20."),
)

KERNELS = (
    Knob(
        "KV_CACHE_DTYPE",
        "text",
        "fp8_e4m3",
        "Type of the KV cache. Plain `fp8` selects a packed layout that this model cannot use.",
    ),
    Knob(
        "MOE_BACKEND",
        "text",
        "flashinfer_cutlass",
        "Kernels of the experts; the MoE overlays read this backend's tensors.",
    ),
    Knob(
        "TOPK_BACKEND",
        "text",
        "per_row",
        "Kernel that picks the sparse indexer's top pools.",
        measured="reported: the original's value",
    ),
    Knob(
        "SAFETENSORS_LOAD_STRATEGY",
        "choice",
        "eager",
        "How weight files are read.",
        choices=("eager", "lazy", "prefetch"),
        measured="reported: eager 511 s, lazy 690 s",
    ),
    Knob(
        "TORCH_MEM_FRACTION",
        "number",
        "0.92",
        "Share of the memory one worker may allocate; past it a request fails instead of the box.",
        check=share,
        measured="reported: the original's value",
    ),
    Knob("TORCH_MEM_STATS_DIR", "path", "/logs", "Where workers publish their allocator's counters.", scope="box"),
    Knob("TORCH_MEM_STATS_INTERVAL", "seconds", "15", "How often they do.", unit="s"),
    Knob("TORCH_MEM_TRACE_DIR", "path", None, "Where allocation history is written when memory runs out.", scope="box"),
    Knob(
        "PYTORCH_CUDA_ALLOC_CONF",
        "text",
        "expandable_segments:True",
        "torch's allocator settings; expandable segments avoid fragmentation on unified memory.",
    ),
    Knob(
        "MAX_JOBS",
        "count",
        "4",
        "Compilers run at once for kernels built at first use; each takes gigabytes.",
        measured="reported: without a bound the first boot took 90 GiB and more, or locked the box up",
    ),
    Knob(
        "AUTOTUNE_CACHE",
        "choice",
        "fresh",
        "fresh tunes FlashInfer's kernels at every boot; persist keeps the results, which rank 0 alone saves.",
        choices=("fresh", "persist"),
        measured="reported: kept results at TP > 1 make the next boot hang in autotuning",
    ),
    Knob(
        "NCCL_MAX_NCHANNELS",
        "count",
        "8",
        "NCCL channels; each takes GPU memory and SMs.",
        measured="reported: the original's value",
    ),
    Knob("NCCL_DEBUG", "text", "WARN", "NCCL's log level; INFO shows the devices and GIDs it chose."),
    Knob("NCCL_IB_HCA", "text", None, "RDMA devices for NCCL instead of those the kit finds.", scope="box"),
    Knob(
        "NCCL_IB_GID_INDEX",
        "integer",
        None,
        "GID slot for every RDMA device. It differs per box and per boot: leave it unset.",
        scope="box",
    ),
    Knob(
        "ITERATION_DETAILS",
        "flag",
        "0",
        "1 logs what each scheduler step held: tokens, requests, milliseconds.",
    ),
    Knob("EXTRA_ARGS", "text", None, "Further vLLM arguments, appended last.", check=_words),
)

SERVICE = (
    Knob("API_KEY", "text", None, "Key that clients must send; prefer API_KEY_FILE.", secret=True, scope="box"),
    Knob("API_KEY_FILE", "path", None, "File with the key, as seen by the kit.", scope="box"),
    Knob("API_PORT", "port", "8002", "Port of the door on every box: the OpenAI endpoint."),
    Knob(
        "MODEL_WAIT_S",
        "seconds",
        "900",
        "How long the door holds a new request while nothing serves, before it answers 503 with Retry-After.",
        unit="s",
    ),
    Knob(
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "seconds",
        "3600",
        "How long vLLM waits for its own engine; a cold boot loads 181 GiB and compiles kernels.",
        unit="s",
    ),
    Knob("ENGINE_PYTHON", "path", "python3", "The Python that has vLLM.", scope="box"),
    Knob(
        "ENGINE_NICE",
        "integer",
        "10",
        "How far vLLM steps back (nice, 0 to 19) when the box is short of processors, so that the page, the door and "
        "the boxes' heartbeats are not late. Lower it where other programs use the processors.",
        measured="2026-11-30, vLLM on the CPU saturating 2 cores, in turn in one lab: p99 of /healthz 328-820 ms at 0, "
        "95 at 5, 49-64 at 10",
        scope="box",
        check=lambda value: None if 0 <= value <= 19 else "0 to 19",
    ),
    Knob(
        "ENGINE_STOP_S",
        "seconds",
        "45",
        "From TERM to KILL when the engine is stopped; at most 3 s when its generation is broken.",
        unit="s",
        scope="box",
    ),
    Knob("LOG_DIR", "path", "/logs", "Where vllm.log is written; the previous one is kept.", scope="box"),
    Knob(
        "LOG_MAX_BYTES",
        "size",
        "200MiB",
        "Size at which the engine's log is cut and a new part begins.",
        unit="bytes",
        scope="box",
    ),
    Knob("CACHE_ROOT", "path", "/cache", "Where compiled kernels are kept between boots; a local disk.", scope="box"),
    Knob(
        "SHARED_TAG",
        "text",
        None,
        "Folder of kernels that any serving options share; unset, it is named by vLLM's version, machine and KV dtype.",
        check=_folder,
    ),
    Knob(
        "CACHE_TAG",
        "text",
        None,
        "Folder of what depends on the serving options too; unset, SHARED_TAG's name and a hash of the options. The "
        "tag of how weights are treated is added to either.",
        check=_folder,
    ),
)

KNOBS: tuple[Knob, ...] = MODEL + KERNELS + SERVICE
