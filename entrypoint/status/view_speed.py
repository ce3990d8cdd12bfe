"""The head's throughput history as small plots with their newest value in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entrypoint.status.plots import nice, spark

SPANS_S = (300.0, 900.0, 1800.0)  # the first that holds all there is
Show = Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _time(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _plain(value: float) -> str:
    return f"{value:.2f}"


@dataclass(frozen=True)
class Plot:
    """Columns of the history in one picture; `labels` name them where there are two; top: of the axis, 0 for nice."""

    title: str
    columns: tuple[str, ...]
    show: Show
    unit: str = ""
    labels: tuple[str, ...] = ()
    top: float = 0.0


PLOTS = (
    Plot("Decode", ("decode",), _count, "tokens/s"),
    Plot("Prefill", ("prefill",), _count, "tokens/s"),
    Plot("Requests", ("running", "waiting"), _count, labels=("running", "waiting")),
    Plot("Tokens a step", ("per_step",), _plain),
    Plot("Drafts accepted", ("accepted",), _share, top=1.0),
    Plot("Time to first token", ("ttft_p50", "ttft_p95"), _time, labels=("p50", "p95")),
    Plot("Between tokens", ("gap_p50", "gap_p95"), _time, labels=("p50", "p95")),
    Plot("KV cache in use", ("kv",), _share, top=1.0),
    Plot("Prefix cache hits", ("hits",), _share, top=1.0),
)


def speed(boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The history of the box that has one: the head's, whichever page shows it. None without one."""
    found = [row for row in boxes if row["status"] and row["status"]["throughput"]]
    found.sort(key=lambda row: row["status"]["box"]["role"] != "head")
    if not found:
        return None
    row, history = found[0], found[0]["status"]["throughput"]
    ages = [age + (row["age_s"] or 0.0) for age in history["age_s"]]
    if not ages or ages[-1] > SPANS_S[-1]:
        return None
    span_s = next((span for span in SPANS_S if span >= ages[0]), SPANS_S[-1])
    return {
        "source": row["status"]["service"]["hostname"] or row["lan"],
        "plots": [_plot(one, history, ages, span_s) for one in PLOTS],
        "span": f"{span_s / 60:.0f} minutes",
        "finished": sorted(history["finished"].items()),
        "preempted": history["preempted"],
        "waiting_why": sorted(history["waiting_why"].items()),
        "notes": _notes(history),
    }


def _plot(plot: Plot, history: Mapping[str, Any], ages: Sequence[float], span_s: float) -> dict[str, Any]:
    columns = [history[name] for name in plot.columns]
    known = [value for column in columns for value in column if value is not None]
    top = plot.top or nice(max(known, default=0.0))
    newest = [column[-1] if column else None for column in columns]
    words = [plot.show(value) if value is not None else "–" for value in newest]
    if plot.title == "Prefill" and history["prefilling"] and history["prefilling"][-1]:
        words = ["prefilling"]
    labels = plot.labels or ("",)
    said = ", ".join(f"{label} {word}".strip() for label, word in zip(labels, words, strict=False))
    lines = [list(zip(ages, column, strict=True)) for column in columns]
    return {
        "title": plot.title,
        "values": [
            {"label": label, "text": word, "nothing": word == plot.show(0)}
            for label, word in zip(labels, words, strict=False)
        ],
        "unit": plot.unit if words[0] not in ("–", "prefilling") else "",
        "top": plot.show(top),
        "svg": spark(lines, span_s, top, 3 * history["every_s"], f"{plot.title}: {said} {plot.unit}, axis to {top:g}"),
    }


def _notes(history: Mapping[str, Any]) -> list[str]:
    notes = []
    if history["prefilling"] and history["prefilling"][-1]:
        notes.append(
            "Prefilling: the counters stand still until a prompt's last chunk is done, but the KV cache grows."
        )
    if history["compiling"] and history["compiling"][-1]:
        notes.append("Still compiling kernels inside requests: speed is not what it will be.")
    return notes
