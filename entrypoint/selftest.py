"""Stage 11's proof: real answers. Badly split or wrongly quantised weights load, bind the API and speak fluent
nonsense; only generating shows it. Three questions whose answers can be checked, then the drafter's acceptance.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from client.metrics import Metrics, drafting
from client.openai import Client
from client.reply import ClientError

Say = Callable[[str], None]

ANSWER_S = 300.0
# Only a timeout is tried again: a busy box is not a wrong model, and a wrong model does not get better.
TRIES = 3
PAUSE_S = 10.0
# A model that thinks needs room before the answer: with little, `content` stays empty.
ANSWER_TOKENS = 800
# The lab's random weights never stop and never answer; their questions only prove that tokens come.
LAB_TOKENS = 16
# Tokens per verify step over the most there can be. Broken drafter weights give about one token a step.
LEAST_SHARE = 0.25
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True)
class Question:
    """`accepted`: words of which one must occur, whole, in the final answer (never in the reasoning)."""

    name: str
    text: str
    accepted: tuple[str, ...]

    def accepts(self, answer: str) -> bool:
        """True when an accepted word stands by itself: 19 is not in 119, 19.5 or 1,190."""
        text = answer.lower()
        return any(re.search(rf"(?<![\w.,-]){re.escape(word)}(?!\w|[.,]\d)", text) for word in self.accepted)


QUESTIONS = (
    Question("capital of Japan", "Name the capital of Japan. Reply with that single word.", ("tokyo",)),
    Question("12 + 7", "Add 7 to 12. Reply with the number alone.", ("19", "nineteen")),
    Question("opposite of up", "Which word means the opposite of up? Reply with that single word.", ("down",)),
)


@dataclass(frozen=True)
class Verdict:
    """`lines`: one a question and one for the drafter. `expected_failure`: failed, as random weights must."""

    passed: bool
    lines: tuple[str, ...]
    expected_failure: bool = False


async def run(
    base_url: str,
    model: str,
    api_key: str | None,
    say: Say,
    *,
    lab: bool = False,
    answer_s: float = ANSWER_S,
    pause_s: float = PAUSE_S,
) -> Verdict:
    """Ask, judge, report each line through `say` as it is known. Never raises for what a server does.

    lab       the engine has random weights: few tokens, and wrong answers are what is expected of it
    answer_s  longest wait for one answer; pause_s: between tries. At most 3 x (3 x answer_s + 2 x pause_s) in all.
    """
    lines: list[str] = []
    wrong = silent = 0
    async with Client(base_url, model, key=api_key, read_s=answer_s) as client:
        before = await _metrics(client)
        for question in QUESTIONS:
            began = time.monotonic()
            try:
                answer = await _ask(client, question, LAB_TOKENS if lab else ANSWER_TOKENS, answer_s, pause_s)
            except ClientError as error:
                silent += 1
                lines.append(f"FAIL {question.name}: {error.line}")
            else:
                good = question.accepts(answer)
                wrong += not good
                shown = " ".join(answer.split())[:60] or "nothing"
                mark = "ok" if good else "wrong, as random weights must be," if lab else "FAIL"
                lines.append(f"{mark} {question.name}: {shown} ({time.monotonic() - began:.1f} s)")
            say(lines[-1])
        good, line = drafter_line(before, await _metrics(client))
        lines.append(line)
        say(line)
    passed = not wrong and not silent and good
    return Verdict(passed, tuple(lines), expected_failure=lab and not passed and not silent)


async def _ask(client: Client, question: Question, tokens: int, answer_s: float, pause_s: float) -> str:
    """The final answer's text. Raises ClientError: at once, or the third time when it is a timeout."""
    for left in reversed(range(TRIES)):
        try:
            reply = await client.chat(
                [{"role": "user", "content": question.text}],
                stream=False,
                deadline_s=answer_s,
                temperature=0,
                max_tokens=tokens,
            )
        except ClientError as error:
            if error.problem != "timeout" or not left:
                raise
            await asyncio.sleep(pause_s)
        else:
            return reply.text
    raise AssertionError("unreachable: the last try returns or raises")


async def _metrics(client: Client) -> Metrics | None:
    """One reading, or None: an engine whose counters cannot be read is not a wrong model."""
    try:
        return await client.metrics()
    except ClientError:
        return None


def drafter_line(before: Metrics | None, after: Metrics | None) -> tuple[bool, str]:
    """(good, line) from the counters around the questions.

    Judged is the mean number of tokens per verify step (1 means that no draft was ever right), not the share of
    accepted drafts: that falls by itself as more are drafted.
    """
    if before is None or after is None:
        return True, "info drafter: /metrics could not be read, not judged"
    change = drafting(before, after)
    length = change.tokens_per_step
    if length is None:
        return True, "info drafter: nothing was drafted"
    most = 1 + (len(after.by(PER_POSITION, "position")) or round(change.drafted / change.steps))
    least = LEAST_SHARE * most
    good = length >= least
    told = f"{length:.2f} tokens a step of at most {most}"
    return good, f"ok drafter: {told}" if good else f"FAIL drafter: {told}, expected {least:.2f} or more"
