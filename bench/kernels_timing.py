"""How the kernel benches measure: graphs of launches over rotating data, events around replays, the median.

One set of weights of these shapes fits in an L2; so a graph launches over as many sets as make several times the L2.
Rates are bytes that must be read once, over the time of one launch inside the graph, launch gaps included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Data a graph touches: about five times the H200's 60 MB of L2, and far more than GB10's.
WORKING_SET = 320e6


def sets_for(bytes_each: float) -> int:
    """Copies of the data so that a graph's working set is several times the L2."""
    return max(2, min(256, int(WORKING_SET // max(1.0, bytes_each)) + 1))


def graph_of(steps: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """A captured graph of the steps in order, warmed up once outside."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for step in steps:
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for step in steps:
            step()
    return graph


def seconds_each(steps: Sequence[Callable[[], Any]], repeats: int = 7, least_s: float = 0.004) -> float:
    """Median seconds of one step: graph replays between events, at least `least_s` a measurement."""
    graph = graph_of(steps)
    graph.replay()
    torch.cuda.synchronize()
    once = _replay_seconds(graph, 2)
    count = max(2, int(least_s / once))
    return statistics.median(_replay_seconds(graph, count) for _ in range(repeats)) / len(steps)


def _replay_seconds(graph: torch.cuda.CUDAGraph, count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def ceilings() -> dict[str, float]:
    """GB/s of a device-to-device copy (read + write) and of the best read-only reduction found, on 2 GB."""
    source = torch.randn(512 * 1024 * 1024, device="cuda")
    target = torch.empty_like(source)
    size = source.numel() * 4
    copy = 2 * size / seconds_each([lambda: torch.neg(source, out=target)], least_s=0.02)
    reads = [
        size / seconds_each([function], least_s=0.02)
        for function in (lambda: source.sum(), lambda: source.amax(), lambda: source.view(torch.int32).amax())
    ]
    return {"copy_gbps": copy / 1e9, "read_gbps": max(reads) / 1e9}
