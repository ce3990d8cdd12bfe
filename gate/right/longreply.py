"""Long replies scored twice: once as they are written, once as a prompt. Both read the same weights, so the two
log probabilities of a token must agree, at the end of a long reply as at its start."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from gate.check import Check, Outcome, Plot
from gate.session import Scope

PROMPT = (
    "Write a very long and detailed story about the keeper of a lighthouse who repairs clocks. "
    "Give every chapter a heading, and do not stop early."
)
WORST_WINDOW = 0.40  # mean |difference| of one window, nats
GROWTH = 1.8  # second half against the first two windows
REPEAT_LENGTH, REPEATS = 16, 8


def windows(differences: Sequence[float], size: int) -> list[float]:
    """Mean absolute difference per window; a last window under half the size is left out."""
    cuts = [differences[start : start + size] for start in range(0, len(differences), size)]
    return [sum(map(abs, cut)) / len(cut) for cut in cuts if len(cut) * 2 >= size]


def repeats(tokens: Sequence[int], size: int) -> int:
    """How often the commonest run of REPEAT_LENGTH tokens occurs within one window, counted without overlap."""
    worst = 0
    for start in range(0, len(tokens), size):
        part = tuple(tokens[start : start + size])
        counts: dict[tuple[int, ...], tuple[int, int]] = {}
        for place in range(len(part) - REPEAT_LENGTH + 1):
            run = part[place : place + REPEAT_LENGTH]
            count, last = counts.get(run, (0, -REPEAT_LENGTH))
            if place - last >= REPEAT_LENGTH:
                counts[run] = (count + 1, place)
                worst = max(worst, count + 1)
    return worst


def judge(means: Sequence[float], repeated: int) -> str | None:
    """Why the reply fails, or None."""
    if repeated > REPEATS:
        return f"a run of {REPEAT_LENGTH} tokens comes {repeated} times within one window"
    if means and max(means) > WORST_WINDOW:
        return f"window {means.index(max(means)) + 1} differs by {max(means):.3f} nats on average"
    start = sum(means[:2]) / max(1, len(means[:2]))
    late = means[len(means) // 2 :]
    if len(means) >= 4 and start > 0.001 and sum(late) / len(late) > GROWTH * start:
        return f"the second half differs {sum(late) / len(late) / start:.1f} times as much as the start"
    return None


async def run(scope: Scope) -> Outcome:
    """Write, score again, compare window by window."""
    lines: list[dict[str, Any]] = []
    reasons: list[str] = []
    figures: list[dict[str, Any]] = []
    for number in range(scope["replies"]):
        row = await scope.once(str(number), lambda number=number: _reply(scope, number))  # type: ignore[misc]
        if row.get("missing"):
            return Outcome("inconclusive", f"the server gives no {row['missing']}", {})
        means = windows(row["differences"], scope["window"])
        repeated = repeats(row["tokens"], scope["window"])
        figures.append({"tokens": len(row["tokens"]), "window_means": means, "repeats": repeated})
        lines.append(
            {"name": f"reply {number + 1}", "x": [(i + 1) * scope["window"] for i in range(len(means))], "y": means}
        )
        reason = judge(means, repeated)
        if reason:
            reasons.append(f"reply {number + 1}: {reason}")
        scope.note(f"reply {number + 1}: {len(row['tokens'])} tokens, windows {' '.join(f'{m:.3f}' for m in means)}")
    plot = Plot(
        "lines", "Written against scored again", "tokens into the reply", "mean |difference|, nats", {"lines": lines}
    )
    longest = max(entry["tokens"] for entry in figures)
    if reasons:
        return Outcome("fail", reasons[0], {"replies": figures}, (plot,))
    if longest < scope["least"]:
        return Outcome(
            "inconclusive", f"the longest reply has {longest} tokens of {scope['least']}", {"replies": figures}, (plot,)
        )
    worst = max(itertools.chain.from_iterable(entry["window_means"] for entry in figures))
    return Outcome("pass", f"largest window mean {worst:.4f} nats over {longest} tokens", {"replies": figures}, (plot,))


async def _reply(scope: Scope, number: int) -> dict[str, Any]:
    client = scope.client
    chat = [{"role": "user", "content": f"[{scope.tag(number)}]\n{PROMPT}"}]
    reply = await client.chat(
        chat,
        stream=False,
        max_tokens=scope.budget(scope["tokens"]),
        temperature=1,
        seed=number,
        reasoning_effort="high",
        logprobs=True,
        return_token_ids=True,
        cache_salt=scope.tag(number),
    )
    body = reply.body or {}
    prompt, tokens = body.get("prompt_token_ids"), body["choices"][0].get("token_ids")
    if not prompt or not tokens:
        return {"missing": "token ids (return_token_ids)"}
    if len(reply.logprobs) != len(tokens):
        return {"missing": f"log probability for every token ({len(reply.logprobs)} for {len(tokens)} tokens)"}
    again = await client.complete(
        [*prompt, *tokens],
        stream=False,
        max_tokens=1,
        temperature=0,
        prompt_logprobs=0,
        cache_salt=scope.tag(number, "again"),
    )
    scored = prompt_logprobs(again.body or {})[len(prompt) :]
    if len(scored) != len(tokens):
        return {"missing": "prompt_logprobs"}
    differences = [written - second for (_, written), second in zip(reply.logprobs, scored, strict=True)]
    return {"differences": [round(value, 5) for value in differences], "tokens": tokens, "finish": reply.finish}


def prompt_logprobs(body: Mapping[str, Any]) -> list[float]:
    """The log probability of each prompt token; the first has none and counts as 0."""
    found = body.get("prompt_logprobs") or body["choices"][0].get("prompt_logprobs") or []
    values = []
    for entry in found:
        # one entry per position: token id -> {logprob, rank}; the prompt's own token is the first
        values.append(float(next(iter(entry.values()))["logprob"]) if entry else 0.0)
    return values


CHECK = Check(
    name="longreply",
    room="right",
    title="Long replies, scored again",
    bar=(
        f"no window differs by more than {WORST_WINDOW} nats on average, the second half by at most {GROWTH} times the "
        f"start, and no {REPEAT_LENGTH}-token run repeats over {REPEATS} times in a window"
    ),
    why="A KV cache that is written or read wrongly drifts: fluent text whose probabilities stop adding up.",
    run=run,
    quick={"replies": 1, "tokens": 3000, "window": 500, "least": 2000},
    full={"replies": 2, "tokens": 16000, "window": 2000, "least": 4000},
)
