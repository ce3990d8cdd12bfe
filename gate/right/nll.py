"""Negative log likelihood of three fixed texts, recorded once and compared from then on: the finest instrument here.
A change of weights, kernels or cache format moves it before any answer changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from gate.check import Check, Outcome, Plot
from gate.right.longreply import prompt_logprobs
from gate.session import Scope

TEXTS = Path(__file__).parent / "texts"
# name -> (lowest, highest) allowed change of the mean, nats per token; prose moves more than code (reported)
BARS = {"notes": (-0.025, 0.025), "kernel": (-0.007, 0.007), "script": (-0.007, 0.007)}
FORMAT = "glm53-nll-1"


def read(path: Path) -> dict[str, list[float]]:
    """A reference: text name -> log probability per token. Raises Refusal."""
    try:
        body = json.loads(path.read_text())
        assert body["format"] == FORMAT
        texts: dict[str, list[float]] = body["texts"]
    except (OSError, ValueError, KeyError, AssertionError, TypeError):
        raise Refusal(
            "NLL reference", str(path), f"a file of format {FORMAT}", "./glm53 gate nll --out DIR records one."
        ) from None
    return texts


async def run(scope: Scope) -> Outcome:
    """Score the texts; with a reference compare, without one record."""
    texts: dict[str, list[float]] = {}
    for name in BARS:
        row = await scope.once(name, lambda name=name: _score(scope, name))  # type: ignore[misc]
        if len(row["logprobs"]) < 2:
            return Outcome("inconclusive", "the server gives no prompt_logprobs", {})
        texts[name] = row["logprobs"]
        scope.note(f"{name}: mean NLL {-sum(texts[name]) / len(texts[name]):.4f}")
    figures: dict[str, Any] = {name: {"tokens": len(v), "nll": -sum(v) / len(v)} for name, v in texts.items()}
    reference = scope.session.nll_reference
    if reference is None:
        if scope.session.out is None:
            return Outcome("inconclusive", "no reference to compare with (--nll-reference)", figures)
        target = scope.session.out / "nll.json"
        target.write_text(json.dumps({"format": FORMAT, "texts": texts}))
        how = f"gate nll --nll-reference {target} compares a later run, or another setup, with it"
        return Outcome("inconclusive", f"nothing to compare with; recorded as the reference: {how}", figures)
    return compare(texts, read(reference), figures)


def compare(texts: dict[str, list[float]], known: dict[str, list[float]], figures: dict[str, Any]) -> Outcome:
    """The change of each mean against its bar."""
    wrong, names, deltas = [], [], []
    for name, (low, high) in BARS.items():
        if len(known.get(name, ())) != len(texts[name]):
            return Outcome("inconclusive", f"{name}: another tokenizer or another text than the reference", figures)
        change = [old - new for old, new in zip(known[name], texts[name], strict=True)]
        delta = sum(change) / len(change)
        figures[name] |= {
            "delta": delta,
            "mean_abs": sum(map(abs, change)) / len(change),
            "max_abs": max(map(abs, change)),
        }
        names.append(name)
        deltas.append(delta)
        if not low <= delta <= high:
            wrong.append(f"{name} moved by {delta:+.4f} nats per token (bar {low:+.3f} to {high:+.3f})")
    plot = Plot("bars", "Change of the mean NLL", "text", "nats per token", {"names": names, "values": deltas})
    if wrong:
        return Outcome("fail", "; ".join(wrong), figures, (plot,))
    shown = ", ".join(f"{name} {delta:+.4f}" for name, delta in zip(names, deltas, strict=True))
    return Outcome("pass", f"change in nats per token: {shown}", figures, (plot,))


async def _score(scope: Scope, name: str) -> dict[str, Any]:
    text = (TEXTS / f"{name}.txt").read_text()
    limit = scope.session.limit
    prompt: Any = text
    tokens = (await scope.client.tokenize(text))["tokens"]
    if limit and len(tokens) + 8 > limit:
        prompt = tokens[: limit - 8]
    reply = await scope.client.complete(
        prompt, stream=False, max_tokens=1, temperature=0, prompt_logprobs=0, cache_salt=scope.tag(name)
    )
    return {"logprobs": [round(value, 6) for value in prompt_logprobs(reply.body or {})[1:]]}


CHECK = Check(
    name="nll",
    room="right",
    title="Likelihood of fixed texts",
    bar="the mean over the prose moves by at most 0.025 nats per token from the reference, over code by at most 0.007",
    why="It sees a wrong scale or a swapped kernel long before an answer changes.",
    run=run,
    quick={"texts": list(BARS)},
    full={"texts": list(BARS)},
)
