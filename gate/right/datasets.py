"""GSM8K and HumanEval from a local folder, where there is one: nothing is downloaded.

gsm8k.jsonl: {"question", "answer"} with `#### number`; humaneval.jsonl: {"task_id", "prompt", "test", "entry_point"}.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from gate.check import Check, Outcome
from gate.right import sandbox
from gate.session import GREEDY, OFF, Scope, together

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
TOLERANCE = 1e-6


def load(folder: Path | None, name: str, needs: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file. Raises Refusal when it is broken; empty when there is none."""
    if folder is None or not (folder / name).exists():
        return []
    rows = []
    for number, text in enumerate((folder / name).read_text().splitlines(), start=1):
        try:
            row = json.loads(text)
            assert all(key in row for key in needs)
        except (ValueError, AssertionError, TypeError):
            raise Refusal(
                "--data", f"{name}:{number}: {text[:60]!r}", f"an object with {', '.join(needs)}", "Correct the file."
            ) from None
        rows.append(row)
    return rows


def number_in(text: str) -> float | None:
    """The number after the last `####`, else the last number of the text."""
    marked = text.rsplit("####", 1)
    found = _NUMBER.findall(marked[1]) if len(marked) == 2 else _NUMBER.findall(text)
    chosen = found[0] if len(marked) == 2 and found else found[-1] if found else None
    return float(chosen.replace(",", "")) if chosen else None


async def gsm8k(scope: Scope) -> Outcome:
    """The first N questions, a few at once."""
    rows = load(scope.session.data, "gsm8k.jsonl", ("question", "answer"))[: scope["questions"]]
    if not rows:
        return Outcome("inconclusive", "no gsm8k.jsonl in --data")
    slots = asyncio.Semaphore(scope["at_once"])
    done = 0

    async def one(number: int, row: dict[str, Any]) -> bool:
        nonlocal done
        async with slots:
            prompt = f"{row['question']}\n\nReason step by step, then end with a line: #### number"
            said = await scope.ask(str(number), prompt, stream=False, max_tokens=1024, seed=1234, **GREEDY, **OFF)
        found, wanted = number_in(said["text"]), number_in(row["answer"])
        done += 1
        scope.note(f"{done} of {len(rows)} asked")
        return found is not None and wanted is not None and abs(found - wanted) <= TOLERANCE

    right = sum(await together(*(one(number, row) for number, row in enumerate(rows))))
    share = right / len(rows)
    reason = f"{right} of {len(rows)} right ({share:.1%}; bar {scope['least']:.1%})"
    return Outcome("pass" if share >= scope["least"] else "fail", reason, {"share": share})


_FENCE = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


def program(row: dict[str, Any], text: str) -> str:
    """The answer's code with the task's tests behind it."""
    found = _FENCE.search(text)
    code = found[1] if found else text
    if f"def {row['entry_point']}" not in code:
        code = row["prompt"] + code
    return f"{code}\n\n{row['test']}\n\ncheck({row['entry_point']})\n"


async def humaneval(scope: Scope) -> Outcome:
    """Write every function, run its tests in the container."""
    rows = load(scope.session.data, "humaneval.jsonl", ("task_id", "prompt", "test", "entry_point"))[: scope["tasks"]]
    if not rows:
        return Outcome("inconclusive", "no humaneval.jsonl in --data")
    missing = await sandbox.missing(scope["image"])
    if missing:
        return Outcome("inconclusive", f"generated code is run in a container only: {missing}")
    right, wrong = 0, {}
    for row in rows:
        prompt = f"Complete this Python function. Answer with the whole function in one code block.\n\n{row['prompt']}"
        said = await scope.ask(row["task_id"], prompt, stream=False, max_tokens=1024, seed=1234, **GREEDY, **OFF)
        good, why = await sandbox.passes(program(row, said["text"]), scope["image"])
        right += good
        if not good:
            wrong[row["task_id"]] = why
        scope.note(f"{right} right, {len(wrong)} wrong")
    share = right / len(rows)
    reason = f"{right} of {len(rows)} pass their tests ({share:.1%})"
    return Outcome("pass" if share >= scope["least"] else "fail", reason, {"share": share, "wrong": wrong})


GSM8K = Check(
    name="gsm8k",
    room="right",
    title="GSM8K",
    bar="at least 95 % of the first 250 questions (95.5 to 98.5 % reported)",
    why="Known questions with known answers; only worth its minutes when other checks moved.",
    run=gsm8k,
    by_name={"questions": 250, "at_once": 8, "least": 0.95},
)
HUMANEVAL = Check(
    name="humaneval",
    room="right",
    title="HumanEval",
    bar="at least 93 % of the tasks pass their tests (154 to 156 of 164 reported)",
    why="Code that runs is right or wrong without a judge.",
    run=humaneval,
    by_name={"tasks": 164, "image": sandbox.IMAGE, "least": 0.93},
)
