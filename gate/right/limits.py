"""Two limits a client relies on: the budget of new tokens, and the context."""

from __future__ import annotations

from client.reply import ClientError
from gate.check import Check, Outcome, judged
from gate.session import GREEDY, OFF, Scope

NAMES = ("context length", "max_model_len")  # how vLLM versions name the limit
PROMPT = "Write the numbers from one to sixty as words, separated by commas."


async def budget(scope: Scope) -> Outcome:
    """Every budget, streamed and not, ends at exactly that many tokens and says `length`."""
    right, total, first = 0, 0, ""
    for most in scope["budgets"]:
        for stream in (True, False):
            row = await scope.ask(
                f"{most}/{stream}", f"[{scope.tag(most)}] {PROMPT}", stream=stream, max_tokens=most, **GREEDY, **OFF
            )
            count = row["usage"]["completion"] if row["usage"] else None
            good = count == most and row["finish"] == "length"
            total += 1
            right += good
            first = first or ("" if good else f"budget {most}: {count} tokens, finish {row['finish']}")
    return judged(right, total, "answers (streamed and not) end at their budget", first)


async def context(scope: Scope) -> Outcome:
    """More than the context holds is refused by name; what fits is answered.

    One token more than the context is asked for: vLLM 0.32 cuts a request for exactly max_model_len down to what is
    left, earlier ones refuse it.
    """
    limit = scope.session.limit
    if not limit:
        return Outcome("inconclusive", "the server does not tell its context length")
    chat = [{"role": "user", "content": "Say hello."}]
    await scope.ask("fits", chat, stream=False, max_tokens=4, **GREEDY, **OFF)
    try:
        await scope.client.chat(chat, stream=False, max_tokens=limit + 1, **GREEDY, **OFF)
    except ClientError as error:
        if error.status is None:
            raise
        if error.status != 400 or not any(name in error.message.lower() for name in NAMES):
            return Outcome("fail", f"refused without naming the context length: {error.line}", {"limit": limit})
        return Outcome("pass", f"more than {limit} tokens are refused by name", {"limit": limit})
    return Outcome("fail", f"a request beyond {limit} tokens was answered", {"limit": limit})


BUDGET = Check(
    name="max_tokens",
    room="right",
    title="max_tokens is exact",
    bar="every answer ends at exactly its budget, with finish reason length",
    why="With drafting a step yields several tokens; the last ones must be cut.",
    run=budget,
    quick={"budgets": [1, 2, 5, 17]},
    full={"budgets": [1, 2, 3, 5, 8, 17, 33]},
)
CONTEXT = Check(
    name="context",
    room="right",
    title="The context limit is refused",
    bar="a request past the context length is HTTP 400 and the message names it",
    why="A client that is cut silently goes on with half a conversation.",
    run=context,
    quick={"tries": 1},
    full={"tries": 1},
)
