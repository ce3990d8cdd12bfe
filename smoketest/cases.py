"""The eight cases. Each asks one thing whose answer can be checked, and raises Wrong at the first check that fails.

Temperature 0 throughout. OFF turns the long reasoning off; the model still thinks briefly then, which is right.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from client.openai import Client
from client.reply import ClientError, Reply
from smoketest import picture

OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
# with a separator between 5 and 3: "glm53" is this kit's own name, and stands in many a path
CHECKPOINT = re.compile(r"glm[-_.]?5[._-]3", re.IGNORECASE)
# The kit mounts whatever MODEL_HOST_DIR names here, so the path tells nothing; GLM's tokenizer knows its own markers.
MOUNT = "/models/target"
MARKERS = "[gMASK]<sop><|user|>"
PRODUCT = "Work out 27 times 14. Answer with the number and nothing else."
PRODUCT_IS = "378"
THINK_TAGS = ("<think>", "</think>")
TIDES = {
    "type": "function",
    "function": {
        "name": "tide_table",
        "description": "Today's high and low water at a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "Name of the harbour town"}},
            "required": ["harbour"],
        },
    },
}


class Wrong(Exception):
    """A check that did not hold: what was expected, and what came."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; seen {' '.join(seen.split())[:400] or 'nothing'}")


@dataclass(frozen=True)
class Case:
    """`run` returns a short note for the case's line, or raises Wrong or ClientError."""

    name: str
    run: Callable[[Client], Awaitable[str]]


def _need(holds: bool, expected: str, seen: str) -> None:
    if not holds:
        raise Wrong(expected, seen)


async def _ask(client: Client, content: Any, most: int, **options: Any) -> Reply:
    messages = [{"role": "user", "content": content}]
    return await client.chat(messages, stream=False, temperature=0, max_tokens=most, **options)


async def models_list_the_checkpoint(client: Client) -> str:
    """Any server can claim the name; the path the engine loaded, or its tokenizer, tells which model it is."""
    entries = {str(entry["id"]): entry for entry in await client.models()}
    _need(client.model in entries, f"a model named {client.model}", ", ".join(entries))
    root = str(entries[client.model].get("root") or "")
    if root.rstrip("/") == MOUNT:
        count = int((await client.tokenize(MARKERS, add_special_tokens=False))["count"])
        _need(count == 3, f"a tokenizer to which {MARKERS} is 3 tokens, as GLM's", f"{count} tokens")
        return f"{root}, with GLM's tokenizer"
    _need(CHECKPOINT.search(root) is not None, "a GLM-5.3 checkpoint as the entry's root", root)
    return root


async def thinking_is_on_by_default(client: Client) -> str:
    """Without any setting the model reasons first, apart from its answer."""
    reply = await _ask(client, PRODUCT, 2048)
    _need(reply.finish == "stop", "finish reason stop", str(reply.finish))
    _need(PRODUCT_IS in reply.text, f"an answer with {PRODUCT_IS}", reply.text)
    _need(bool(reply.reasoning.strip()), "reasoning beside the answer", "none")
    return f"{len(reply.reasoning)} characters of reasoning"


async def thinking_turns_off_per_request(client: Client) -> str:
    """enable_thinking=false shortens it: a bare answer, no think tag in it, little reasoning."""
    reply = await _ask(client, PRODUCT, 512, **OFF)
    _need(PRODUCT_IS in reply.text, f"an answer with {PRODUCT_IS}", reply.text)
    _need(len(reply.text) < 40, "an answer under 40 characters", reply.text)
    _need(not any(tag in reply.text for tag in THINK_TAGS), "no think tag in the answer", reply.text)
    _need(len(reply.reasoning) < 600, "under 600 characters of reasoning", f"{len(reply.reasoning)}: {reply.reasoning}")
    return f"{len(reply.reasoning)} characters of reasoning"


async def fact(client: Client) -> str:
    """Badly loaded weights write fluent text and miss plain facts."""
    reply = await _ask(client, "Name the capital city of New Zealand. One word.", 512, **OFF)
    _need("wellington" in reply.text.lower(), "Wellington", reply.text)
    return reply.text.strip()[:40]


async def tool_call_is_parsed(client: Client) -> str:
    """The call comes as data, with arguments that are JSON, not as text in the answer."""
    question = "When is high water in Stromness today? Look it up."
    reply = await _ask(client, question, 1024, tools=[TIDES], tool_choice="auto", **OFF)
    _need(bool(reply.tool_calls), "a tool call", reply.text)
    call = reply.tool_calls[0]
    _need(call.name == "tide_table", "a call of tide_table", call.name)
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        raise Wrong("arguments that are JSON", call.arguments) from None
    harbour = arguments.get("harbour") if isinstance(arguments, dict) else None
    _need("stromness" in str(harbour).lower(), "harbour Stromness", call.arguments)
    return call.arguments


async def image_is_read(client: Client) -> str:
    """The figure stands in an invented table, so it cannot be guessed."""
    data = base64.b64encode(picture.table_png()).decode()
    question = (
        f"The picture shows a table. Which number stands in the row {picture.LINE}, column {picture.SEASON}? "
        "Answer with the number only."
    )
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": question},
    ]
    reply = await _ask(client, content, 64, **OFF)
    _need(picture.ANSWER in reply.text.replace(",", ""), picture.ANSWER, reply.text)
    return reply.text.strip()[:40]


async def max_tokens_is_exact(client: Client) -> str:
    """A budget of five ends after five tokens, and says so."""
    reply = await _ask(client, "Write the numbers from one to sixty as words, separated by commas.", 5, **OFF)
    _need(reply.finish == "length", "finish reason length", str(reply.finish))
    count = reply.usage.completion if reply.usage else None
    _need(count == 5, "5 completion tokens by usage", str(count))
    return "5 tokens"


async def context_limit_is_refused(client: Client) -> str:
    """More than the context holds is an error that says so, not a cut answer."""
    limit = (await client.tokenize("tide")).get("max_model_len")
    if not isinstance(limit, int):
        raise Wrong("the context length in /tokenize", "")
    try:
        # one more than fits: vLLM 0.32 quietly shortens a request for exactly the limit, earlier ones refuse that too
        reply = await _ask(client, "Say hello.", limit + 1, **OFF)
    except ClientError as error:
        if error.status is None:
            raise
        _need(error.status == 400, "HTTP 400", error.line)
        named = any(name in error.message.lower() for name in ("context length", "max_model_len"))
        _need(named, "a message naming the context length", error.message)
        return f"limit {limit}"
    raise Wrong("HTTP 400", f"an answer: {reply.text}")


CASES = (
    Case("models_list_the_checkpoint", models_list_the_checkpoint),
    Case("thinking_is_on_by_default", thinking_is_on_by_default),
    Case("thinking_turns_off_per_request", thinking_turns_off_per_request),
    Case("fact", fact),
    Case("tool_call_is_parsed", tool_call_is_parsed),
    Case("image_is_read", image_is_read),
    Case("max_tokens_is_exact", max_tokens_is_exact),
    Case("context_limit_is_refused", context_limit_is_refused),
)
