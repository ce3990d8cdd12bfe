"""Reasoning on, off, and its effort, in both places a client may set it."""

from __future__ import annotations

from typing import Any

from gate.check import Check, Outcome
from gate.session import GREEDY, OFF, Scope
from gate.stats import median

PROMPTS = (
    "A ferry leaves every 45 minutes from 6:20. Which is the first one after 14:00? Answer with the time only.",
    "Three nets weigh 41 kg together; the second is twice the first, the third 5 kg more than the first. "
    "How heavy is the first? Answer with the number only.",
    "How many Mondays are in a year of 366 days that starts on a Sunday? Answer with the number only.",
)
BRIEF = 600  # characters of reasoning that count as "off"
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "off": OFF,
    "off (thinking)": {"chat_template_kwargs": {"thinking": False}},
    "low": {"reasoning_effort": "low"},
    "high": {"reasoning_effort": "high"},
    "low (template)": {"chat_template_kwargs": {"reasoning_effort": "low"}},
}


async def run(scope: Scope) -> Outcome:
    """Characters of reasoning per way of asking, as medians over the prompts."""
    length: dict[str, float] = {}
    tags = ""
    for way, options in WAYS.items():
        found = []
        for number, prompt in enumerate(PROMPTS[: scope["prompts"]]):
            tagged = f"[{scope.tag(number)}] {prompt}"
            row = await scope.ask(
                f"{way}/{number}", tagged, max_tokens=scope.budget(scope["tokens"]), **GREEDY, **options
            )
            found.append(len(row["reasoning"]))
            if "<think>" in row["text"] or "</think>" in row["text"]:
                tags = tags or f"{way}: a think tag stands in the answer"
        length[way] = median(found)
        scope.note(", ".join(f"{name} {value:.0f}" for name, value in length.items()))
    return judge(length, tags)


def judge(length: dict[str, float], tags: str) -> Outcome:
    """The bars, on medians of characters of reasoning."""
    wrong = [tags] if tags else []
    if not length["default"]:
        wrong.append("no reasoning without any setting")
    wrong += [f"{way}: {length[way]:.0f} characters" for way in ("off", "off (thinking)") if length[way] >= BRIEF]
    if length["low"] >= length["high"]:
        wrong.append(f"effort low reasons as long as high ({length['low']:.0f} and {length['high']:.0f} characters)")
    if length["low (template)"] >= length["high"]:
        wrong.append("effort low in chat_template_kwargs has no effect")
    shown = ", ".join(f"{way} {value:.0f}" for way, value in length.items())
    figures = {f"characters, {way if way[:3] in ('def', 'off') else f'effort {way}'}": n for way, n in length.items()}
    return Outcome("fail" if wrong else "pass", "; ".join(wrong) or f"characters of reasoning: {shown}", figures)


CHECK = Check(
    name="reasoning",
    room="right",
    title="Reasoning on, off, effort",
    bar=(
        f"reasoning by default, under {BRIEF} characters when off, less at effort low than at high, "
        "and never a tag in the answer"
    ),
    why="Unknown request fields are dropped silently: only counting shows whether a switch does anything.",
    run=run,
    quick={"prompts": 1, "tokens": 2000},
    full={"prompts": 3, "tokens": 6000},
)
