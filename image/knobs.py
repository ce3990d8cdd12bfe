"""The knobs that image reads: most are read by what it installs into vLLM, under the same name."""

from __future__ import annotations

from core.knob import Knob

KNOBS: tuple[Knob, ...] = (
    Knob(
        "W13_RECONCILE",
        "flag",
        "1",
        "Give gate and up of an expert the larger of their two global scales; 0 keeps the gate's, as vLLM does.",
        measured="2026-11-29, CPU: weights equal the unfused ones within e4m3 rounding; with 0 up is off by the factor "
        "between the two (reported 1.4 in 179 of 288 experts of one checkpoint)",
    ),
    Knob(
        "DETERMINISTIC_TOPK",
        "flag",
        "1",
        "Choose the indexer's pools the same way every time, in an image that has the patch; 0 leaves vLLM's choice.",
    ),
    Knob("GLM47_FAIL_CLOSED", "flag", "1", "With TOOL_PARSER=glm47_failclosed: 0 lets bad tool calls pass after all."),
    Knob(
        "GLM47_REJECT_AS_TEXT",
        "flag",
        "0",
        "With TOOL_PARSER=glm47_failclosed: tell a refused call as text of the answer. This ends agent loops.",
    ),
    Knob(
        "VLLM_GLM53_CUDA_SPARSE_MLA",
        "text",
        None,
        "1 leaves the sparse attention of capability 12 to a vLLM plugin that registers it; refused without one.",
    ),
    Knob(
        "VLLM_GLM53_MOE_INPUT_SCALE",
        "text",
        None,
        "Read by an outside attention plugin, not by this kit; a warning says that it is set.",
    ),
    Knob("TORCH_MEM_TRACE_ENTRIES", "count", "100000", "Allocations that the memory trace remembers.", scope="box"),
)
