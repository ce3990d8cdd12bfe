"""The knobs that entrypoint/sizing reads: memory, context, sequences, blocks, graphs."""

from __future__ import annotations

import re

from core.knob import Knob, share

GPU_CEILING = 0.88


def _capture_sizes(value: str) -> str | None:
    return None if re.fullmatch(r"\d+(,\d+)*", value) else "batch sizes such as 1,2,4,8"


def _start(value: str) -> str | None:
    parts = value.split(",")
    good = len(parts) == 3 and all(re.fullmatch(r"\d+(\.\d+)?", part) for part in parts)
    return None if good else "three numbers: ms,ms per expert,ms per token"


KNOBS: tuple[Knob, ...] = (
    Knob(
        "PROFILE",
        "choice",
        "latency",
        "latency: one stream is fast and a long prompt never blocks a short one; throughput: more streams at once.",
        choices=("latency", "throughput"),
        measured="reported: the fairness of the latency profile costs a solo user about 5 %",
    ),
    Knob(
        "KV_CACHE_MEMORY",
        "size",
        None,
        "The KV pool of each rank, pinned: profiling at start-up is not repeatable on memory that CPU and GPU share.",
        unit="bytes",
        measured="reported: 28 GiB at TP=4 lost a worker under eight long requests; 26 GiB at TP=3 lost rank 0",
    ),
    Knob(
        "MAX_MODEL_LEN",
        "count",
        None,
        "The longest request, prompt and answer together.",
        unit="tokens",
        measured="reported: needle recall 12/12 to 507k tokens at 524288 (TP=3 and 4)",
    ),
    Knob(
        "MAX_NUM_SEQS",
        "count",
        None,
        "Requests decoding at once; each holds its recurrent states in the KV pool.",
        unit="requests",
        measured="reported: 64 with RecoverSSM (16 at TP=2), 32 without (4 at TP=2)",
    ),
    Knob(
        "BLOCK_SIZE",
        "count",
        None,
        "Tokens per KV block as requested; vLLM lifts it until a KDA state fits one page.",
        unit="tokens",
        measured="by arithmetic and reported: 2304 becomes 4608 at TP=2, 3456 becomes 3584 at TP=3",
    ),
    Knob(
        "MAX_NUM_BATCHED_TOKENS",
        "count",
        None,
        "Tokens of one scheduler step; activations grow with it.",
        unit="tokens",
        measured="reported: 16384 and 8192 alike at 200k once prefills are capped; 16384 at TP=2 lost a worker",
    ),
    Knob(
        "LONG_PREFILL_TOKEN_THRESHOLD",
        "count",
        None,
        "One prompt's share of a step, a multiple of the effective block, so that short requests get through.",
        unit="tokens",
        measured="reported: a 12-token request beside a 120k prefill waited 4.83 s with 2304, 78-90 s without",
    ),
    Knob(
        "DECODE_RESERVE_TOKENS",
        "integer",
        None,
        "Tokens of a step kept for decoding streams when no prefill cap is wanted (cap = step - reserve).",
        unit="tokens",
    ),
    Knob(
        "GPU_MEM_UTIL",
        "number",
        str(GPU_CEILING),
        "Share of memory vLLM may take; with the KV pool pinned it is a ceiling only.",
        check=share,
        measured="reported: 0.90 passes start-up and wedges the box hours later",
    ),
    Knob("CUDA_GRAPHS", "flag", "1", "0 runs without CUDA graphs: slower decode, less memory, quicker start."),
    Knob(
        "CUDAGRAPH_MAX",
        "count",
        None,
        "Largest batch captured as a CUDA graph: min(512, MAX_NUM_SEQS x (1 + drafted tokens)).",
        unit="tokens",
    ),
    Knob(
        "CUDAGRAPH_MODE",
        "choice",
        None,
        "vLLM's graph mode, when its own choice is not wanted.",
        choices=("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"),
    ),
    Knob(
        "CUDAGRAPH_CAPTURE_SIZES",
        "text",
        None,
        "The exact batch sizes to capture, in place of vLLM's list up to CUDAGRAPH_MAX.",
        unit="tokens",
        check=_capture_sizes,
    ),
    Knob(
        "VLLM_ADAPTIVE_K_MODEL",
        "text",
        None,
        "Start of the step-cost model of adaptive-k: ms per step, ms per expert read, ms per token.",
        unit="ms",
        check=_start,
        measured="reported per TP size with the original's overlays on",
    ),
    Knob(
        "ALLOW_TIGHT",
        "flag",
        "0",
        "1 starts with values that the budget refuses, and says so; the box may hang without ssh.",
    ),
    Knob(
        "KV_LAYOUT",
        "choice",
        "packed",
        "How the base lays out KV pages, for the prediction only: packed (vLLM 0.32) or split (0.31 and the nightly).",
        choices=("packed", "split"),
    ),
)
