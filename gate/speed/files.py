"""The file of a speed run, and llama-benchy's results read into it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.refusal import Refusal

if TYPE_CHECKING:
    from gate.session import Scope

FORMAT = "glm53-speed-1"
_RUN = ("work", "i", "rate", "tokens", "decode_s", "problem")


def build(scope: Scope, runs: Sequence[dict[str, Any]], summary: dict[str, Any]) -> dict[str, Any]:
    """The run file. Conditions are added by the runner when the check has ended."""
    session = scope.session
    return {
        "format": FORMAT,
        "series": session.series,
        "label": session.label,
        "url": session.client.root,
        "model": session.client.model,
        "version": session.version,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "params": dict(scope.params),
        "conditions": session.conditions,
        "runs": list(runs),
        "summary": summary,
    }


def keep(scope: Scope, file: dict[str, Any]) -> None:
    """Write it as speed.json where the gate has a folder."""
    if scope.session.out is not None:
        (scope.session.out / "speed.json").write_text(json.dumps(file, indent=1))


def read(path: Path) -> dict[str, Any]:
    """A run file. Raises Refusal when it is none."""
    try:
        body: dict[str, Any] = json.loads(path.read_text())
        if "benchmarks" in body:
            raise Refusal(
                "speed file",
                f"{path}, a llama-benchy result",
                "a file of `gate speed run`",
                "Its runs do not pair with anything; `gate import` shows them.",
            )
        assert body["format"] == FORMAT
        assert all(all(key in run for key in _RUN) for run in body["runs"])
    except (OSError, ValueError, KeyError, AssertionError, TypeError):
        raise Refusal(
            "speed file", str(path), f"a file of format {FORMAT}", "./glm53 gate speed run --out DIR makes one."
        ) from None
    return body


def benchy(path: Path) -> list[dict[str, Any]]:
    """Rows of a llama-benchy 0.4 JSON result, in this gate's units. Raises Refusal.

    It counts stream events as tokens, so with drafting its decode rates are too low: `counts` says so.
    """
    try:
        body = json.loads(path.read_text())
        rows = []
        for run in body["benchmarks"]:

            def mean(name: str, run: dict[str, Any] = run) -> float | None:
                return run[name]["mean"] if run.get(name) else None

            ttft = mean("e2e_ttft")
            rows.append(
                {
                    "tool": f"llama-benchy {body['version']}",
                    "model": body["model"],
                    "counts": "events",
                    "streams": run["concurrency"],
                    "depth": run["context_size"],
                    "prompt": run["prompt_size"],
                    "answer": run["response_size"],
                    "prefill_rate": mean("pp_throughput"),
                    "decode_rate": mean("tg_throughput"),
                    "ttft_s": ttft / 1000 if ttft is not None else None,
                }
            )
    except (OSError, ValueError, KeyError, TypeError):
        raise Refusal(
            "llama-benchy result",
            str(path),
            "its JSON (--format json)",
            "llama-benchy ... --format json --save-result FILE",
        ) from None
    return rows
