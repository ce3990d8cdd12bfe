"""Percentiles between two readings of a Prometheus histogram: what a bucket can tell, and no more. Pure."""

from __future__ import annotations

import math
from typing import Any

from client.metrics import Metrics

# As vLLM names them, without `vllm:` and `_seconds`.
HISTOGRAMS = (
    "time_to_first_token",
    "inter_token_latency",
    "request_queue_time",
    "request_prefill_time",
    "request_decode_time",
)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def percentiles(before: Metrics, after: Metrics, histogram: str) -> dict[str, Any]:
    """Observations in between and, for each share, the bound of the bucket it fell into, in seconds.

    `{"p50": {"at_most_s": 0.2}}`; in the last, unbounded bucket `{"more_than_s": ...}`. No observation: none of them.
    """
    name = f"vllm:{histogram}_seconds"
    counts = _between(before, after, f"{name}_bucket")
    total = counts[-1][1] if counts else 0.0
    found: dict[str, Any] = {"histogram": histogram, "observations": round(total)}
    if total <= 0:
        return found
    for label, share in SHARES.items():
        below = 0.0
        for bound, count in counts:
            if count >= share * total:
                infinite = math.isinf(bound)
                found[label] = {"more_than_s": below} if infinite else {"at_most_s": bound}
                break
            below = bound
    return found


def _between(before: Metrics, after: Metrics, name: str) -> list[tuple[float, float]]:
    """(upper bound, observations up to it), bounds rising, all label sets summed. A restarted engine counts anew."""
    old, new = before.by(name, "le"), after.by(name, "le")
    if any(new.get(bound, 0.0) < value for bound, value in old.items()):
        old = {}
    found = []
    for text, value in new.items():
        try:
            bound = float(text)
        except ValueError:
            continue
        if not math.isnan(bound):
            found.append((bound, value - old.get(text, 0.0)))
    return sorted(found)
