"""From two readings of vLLM's /metrics to one sample of the history. Pure.

Rates are differences over the time between the readings; percentiles come from the histograms' differences, linear
within a bucket, and say nothing (None) when nothing was observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from client.metrics import Metrics, drafting

TTFT = "vllm:time_to_first_token_seconds"
GAP = "vllm:inter_token_latency_seconds"
FINISHED = "vllm:request_success_total"
PREEMPTED = "vllm:num_preemptions_total"
WAITING_WHY = "vllm:num_requests_waiting_by_reason"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
# Too few steps say nothing about a drafter; of broken weights next to no draft is ever right.
JUDGED_STEPS = 200
BROKEN = 1.1


@dataclass(frozen=True)
class Sample:
    """One stretch of time that ends at `at` (CLOCK_BOOTTIME).

    decode, prefill     tokens/s generated, and computed of prompts (what the cache held is not counted)
    running, waiting    requests at the end of the stretch; kv: share of the KV cache in use, 0 to 1
    per_step            tokens a verify step yields; accepted: share of drafted tokens kept
    ttft, gap           (p50, p95) of time to first token and of the time between tokens, seconds
    hits                share of prompt tokens found in the prefix cache
    prefilling          counters stand still while KV grows: vLLM counts a prompt when its last chunk is done
    compiling           a kernel was compiled while requests were in the engine
    """

    at: float
    decode: float = 0.0
    prefill: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    kv: float = 0.0
    per_step: float | None = None
    accepted: float | None = None
    ttft: tuple[float | None, float | None] = (None, None)
    gap: tuple[float | None, float | None] = (None, None)
    hits: float | None = None
    prefilling: bool = False
    compiling: bool = False


def sample(before: Metrics, after: Metrics, seconds: float, at: float, compiling: bool = False) -> Sample:
    """What happened between two readings that lie `seconds` apart. A counter that fell (a new engine) counts as 0."""

    def change(name: str) -> float:
        return max(0.0, after.sum(name) - before.sum(name))

    generated, prompted = change("vllm:generation_tokens_total"), change("vllm:prompt_tokens_total")
    cached = change("vllm:prompt_tokens_cached_total")
    queries, found = change("vllm:prefix_cache_queries_total"), change("vllm:prefix_cache_hits_total")
    running = after.sum("vllm:num_requests_running")
    kv, kv_before = after.sum("vllm:kv_cache_usage_perc"), before.sum("vllm:kv_cache_usage_perc")
    drafts = drafting(before, after)
    return Sample(
        at=at,
        decode=generated / seconds,
        prefill=max(0.0, prompted - cached) / seconds,
        running=running,
        waiting=after.sum("vllm:num_requests_waiting"),
        kv=kv,
        per_step=drafts.tokens_per_step if drafts.steps > 0 else None,
        accepted=drafts.acceptance if drafts.drafted > 0 else None,
        ttft=(quantile(before, after, TTFT, 0.5), quantile(before, after, TTFT, 0.95)),
        gap=(quantile(before, after, GAP, 0.5), quantile(before, after, GAP, 0.95)),
        hits=found / queries if queries else None,
        prefilling=running > 0 and not generated and not prompted and kv > kv_before,
        compiling=compiling and running > 0,
    )


def quantile(before: Metrics, after: Metrics, name: str, share: float) -> float | None:
    """The quantile of a histogram's change, in the histogram's unit; None without observations.

    What lies beyond the last finite bound is given as that bound: at least so much.
    """
    new, old = after.by(f"{name}_bucket", "le"), before.by(f"{name}_bucket", "le")
    counts: list[tuple[float, float]] = []
    for text, total in new.items():
        try:
            bound = float(text)
        except ValueError:
            continue
        counts.append((bound, max(0.0, total - old.get(text, 0.0))))
    return _within(sorted(counts), share)


def _within(cumulative: Sequence[tuple[float, float]], share: float) -> float | None:
    if not cumulative or cumulative[-1][1] <= 0:
        return None
    wanted = share * cumulative[-1][1]
    low, under = 0.0, 0.0
    for bound, count in cumulative:
        if count >= wanted and count > under:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (wanted - under) / (count - under)
        if not math.isinf(bound):
            low, under = bound, max(under, count)
    return low


@dataclass(frozen=True)
class Totals:
    """Since the engine's start: requests finished by reason, preemptions, what waits and why."""

    finished: dict[str, int]
    preempted: int
    waiting: dict[str, int]


def totals(now: Metrics) -> Totals:
    """The counters that are shown as they are."""
    finished = {reason or "unknown": round(count) for reason, count in now.by(FINISHED, "finished_reason").items()}
    waiting = {reason or "unknown": round(count) for reason, count in now.by(WAITING_WHY, "reason").items() if count}
    return Totals(finished, round(now.sum(PREEMPTED)), waiting)


def drafter_trouble(before: Metrics, after: Metrics) -> str:
    """What is wrong with the drafter between two readings, or "": almost no draft was right over many steps."""
    change = drafting(before, after)
    length = change.tokens_per_step
    if length is None or change.steps < JUDGED_STEPS or length >= BROKEN:
        return ""
    most = 1 + (len(after.by(PER_POSITION, "position")) or round(change.drafted / change.steps))
    return (
        f"the drafter yields {length:.1f} of {most} tokens a step: are its weights the ones that belong to this model?"
    )
