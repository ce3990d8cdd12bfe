"""This box's status as Prometheus metrics, made anew at every scrape: nothing can be stale or left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MOODS = ("good", "warn", "busy", "bad")

Status = Mapping[str, Any]


def text(status: Status) -> bytes:
    """The text format of one status."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(status))
    return generate_latest(registry)


class _Collector:
    def __init__(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        """All families."""
        status = self.status
        yield _gauge(
            "healthy", "1 when every rank is alive and a real answer is younger than a minute", status["healthy"]
        )
        yield InfoMetricFamily(
            "glm53_box",
            "Who this box is",
            value={
                "version": status["service"]["version"],
                "role": status["box"]["role"],
                "state": status["box"]["state"],
                "stage": status["stage"],
                "plan": (status["plan"] or {}).get("hash", ""),
            },
        )
        yield _by("mood", "The sentence's colour", "mood", {mood: mood == status["mood"] for mood in MOODS})
        current = next((one for one in status["stages"] if one["key"] == status["stage"]), None)
        elapsed = current["elapsed_s"] if current else None
        yield _by("stage_seconds", "Time in the current stage of the boot", "stage", {status["stage"]: elapsed})
        yield _gauge("generation_epoch", "Epoch of the running generation", (status["generation"] or {}).get("epoch"))
        yield _gauge("incarnation", "Engines that this kit has had and lost", status["box"]["n"])
        yield _gauge("answer_age_seconds", "Since the engine last gave a token (head)", status["answer"]["answered_s"])
        yield _gauge("step_age_seconds", "Since a step last came back (head)", status["answer"]["stepped_s"])
        yield _gauge("troubles", "What is wrong though the box may serve", len(status["troubles"]))
        yield _gauge("refusals", "Settings and facts that this box refuses", len(status["refusals"]))
        yield _by("rows", "Rows of preflight and fabric", "level", _levels(status["rows"]))
        alarms = CounterMetricFamily("glm53_kernel_alarms", "Alarming lines of the kernel's log", labels=["what"])
        for alarm in status["alarms"]:
            alarms.add_metric([alarm["what"]], alarm["count"])
        yield alarms
        yield from _memory(status["memory"])
        yield from _load(status["load"])


def _gauge(name: str, help: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(f"glm53_{name}", help)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _by(name: str, help: str, label: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(f"glm53_{name}", help, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], float(value))
    return family


def _levels(rows: list[Mapping[str, Any]]) -> dict[str, float | None]:
    return {level: sum(row["level"] == level for row in rows) for level in ("FAIL", "WARN", "ok", "info")}


def _memory(memory: Mapping[str, Any]) -> Iterator[Metric]:
    parts = {one["name"]: one["size"] for one in memory["segments"]}
    yield _by("memory_bytes", "Parts of MemTotal, which they sum to", "part", parts)
    plan = {one["name"]: one["size"] for one in memory["plan"]}
    yield _by("memory_plan_bytes", "The plan's budget of MemTotal", "part", plan)
    yield _gauge("memory_available_bytes", "MemAvailable", memory["available"] or None)


def _load(load: Mapping[str, Any]) -> Iterator[Metric]:
    yield _gauge("cpu_busy_ratio", "Share of all cores that was busy", load["cpu"])
    yield _by(
        "disk_free_bytes", "Free where the kit reads and writes", "path", {d["path"]: d["free"] for d in load["disks"]}
    )
    for name, help in (
        ("power_w", "GPU power in watts"),
        ("clock_mhz", "SM clock"),
        ("temperature_c", "GPU temperature"),
        ("busy_percent", "GPU utilisation"),
    ):
        yield _by(f"gpu_{name}", help, "gpu", {str(index): one[name] for index, one in enumerate(load["gpus"])})
