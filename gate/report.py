"""report.json and report.html: the whole gate in one file that needs nothing else, not even a network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from core.refusal import Refusal
from core.units import show_seconds
from gate import plots

FORMAT = "glm53-gate-1"
ROOM_TITLES = {"right": "Is it right?", "fair": "Is it fair?", "speed": "Is it fast?"}
# figure name -> how people say it
NAMES = {
    "rate": "rate, tok/s",
    "low": "low (95 %)",
    "high": "high (95 %)",
    "median_rate": "median run, tok/s",
    "ttft_s": "first token, s",
    "settle_s": "at most so long until all streams run, s",
    "spread": "spread",
    "detects": "detects",
    "tokens_per_step": "tokens per step",
    "drafts_per_step": "drafts per step",
    "ms_per_step": "ms per step",
    "per_stream": "per stream, tok/s",
    "acceptance": "acceptance",
    "server_queue_s": "queue in server, s",
    "nll": "NLL, nats/token",
    "delta": "change",
    "mean_abs": "mean |change|",
    "max_abs": "largest |change|",
}
SHARES = {"spread", "detects", "acceptance", "share"}


def figure(name: str, value: Any) -> str:
    """One figure as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ", ".join(str(item) for item in value) or "none" if isinstance(value, list | tuple) else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "never" if value > 0 else "–"
    if name in SHARES:
        return f"{value:.1%}"
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    return (
        f"{value:,.0f}"
        if size >= 1000
        else f"{value:.1f}"
        if size >= 100
        else f"{value:.2f}"
        if size >= 1
        else f"{value:.4f}"
    )


def tables(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures as tables: plain ones in one, those that are rows of the same shape in another."""
    plain = [(name, value) for name, value in figures.items() if not isinstance(value, Mapping | list)]
    nested = {name: value for name, value in figures.items() if isinstance(value, Mapping)}
    out: list[dict[str, Any]] = []
    if plain:
        out.append(
            {
                "head": [],
                "rows": [[NAMES.get(name, name.replace("_", " ")), figure(name, value)] for name, value in plain],
            }
        )
    if nested:
        columns = list(
            dict.fromkeys(
                key
                for value in nested.values()
                for key, cell in value.items()
                if not isinstance(cell, Mapping | list) or key == "outliers"
            )
        )
        columns = [key for key in columns if key != "first_problem" or any(value.get(key) for value in nested.values())]
        rows = [
            [name.replace("_", " "), *(figure(key, value.get(key)) for key in columns)]
            for name, value in nested.items()
        ]
        out.append({"head": ["", *(NAMES.get(key, key.replace("_", " ")) for key in columns)], "rows": rows})
    return out


def sentence(results: list[Mapping[str, Any]]) -> str:
    """The gate in one sentence."""
    count = {
        verdict: sum(r["outcome"]["verdict"] == verdict for r in results)
        for verdict in ("pass", "fail", "inconclusive")
    }
    failed = [r["title"] for r in results if r["outcome"]["verdict"] == "fail"]
    text = f"{count['pass']} of {len(results)} checks passed"
    if failed:
        text += f"; {count['fail']} failed: {', '.join(failed)}"
    if count["inconclusive"]:
        text += f"; {count['inconclusive']} could not decide"
    return text + "."


def build(head: Mapping[str, Any], results: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The report as plain data."""
    return {"format": FORMAT, **head, "sentence": sentence(results), "results": results}


def html(report: Mapping[str, Any]) -> str:
    """The report as one HTML page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    rooms = []
    for room, title in ROOM_TITLES.items():
        mine = [result for result in report["results"] if result["room"] == room]
        if mine:
            rooms.append({"title": title, "results": [_shown(result) for result in mine]})
    return environment.get_template("report.html.j2").render(report=report, rooms=rooms)


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    drawn = [{"title": plot["title"], "svg": plots.draw(plot)} for plot in result["outcome"]["plots"]]
    return {
        **result,
        "took": show_seconds(result["seconds"]),
        "tables": tables(result["outcome"]["figures"]),
        "drawn": [plot for plot in drawn if plot["svg"]],
        "sizes": ", ".join(f"{k} {figure(k, v)}" for k, v in result["params"].items()),
    }


def _finite(value: Any) -> Any:
    """Infinity and NaN are no JSON: they become "never" and null."""
    if isinstance(value, float) and not math.isfinite(value):
        return "never" if value > 0 else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Both files, each replaced whole."""
    for name, text in (
        ("report.json", json.dumps(_finite(report), indent=1, ensure_ascii=False)),
        ("report.html", html(report)),
    ):
        partial = folder / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / name)


def read(folder: Path) -> dict[str, Any]:
    """report.json of a folder. Raises Refusal."""
    try:
        body: dict[str, Any] = json.loads((folder / "report.json").read_text())
        assert body["format"] == FORMAT
    except (OSError, ValueError, KeyError, AssertionError, TypeError):
        raise Refusal(
            "gate folder", str(folder), "a folder with a gate's report.json", "./glm53 gate quick --out DIR makes one."
        ) from None
    return body
