"""Reading what a server answers: JSON bodies, stream events, error bodies. Pure: a Reply is filled, nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from client.reply import ClientError, Event, Kind, Reply, ToolCall, Usage

Say = Callable[[str], None]


def message(text: str) -> str:
    """The server's own words from an error body, shortened to a line."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict):
        error = body.get("error", body.get("detail", body.get("message", "")))
        found = error.get("message", "") if isinstance(error, dict) else error
        text = found if isinstance(found, str) else json.dumps(found)
    elif "<html" in text[:500].lower():
        text = "an HTML page"
    return " ".join(text.split())[:300]


def parsed(data: bytes, response: httpx.Response, url: str) -> dict[str, Any]:
    """The JSON object of a body. Raises ClientError with a line for HTML and for anything else."""
    try:
        body = json.loads(data)
    except ValueError:
        what = "HTML" if b"<html" in data[:500].lower() else response.headers.get("content-type") or "something else"
        raise ClientError(
            "not-json", f"{url} answered {what} instead of JSON: is this the right port?", status=response.status_code
        ) from None
    if not isinstance(body, dict):
        raise ClientError("bad", f"{url} answered JSON that is no object", status=response.status_code)
    return body


def _usage(found: Any) -> Usage | None:
    if not isinstance(found, dict) or "prompt_tokens" not in found:
        return None
    details = found.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(int(found["prompt_tokens"]), int(found.get("completion_tokens") or 0), cached)


def take(reply: Reply, data: bytes, now: float, on_text: Say | None) -> bool:
    """Take one event into the reply; True for the end mark. Raises ClientError for an error in the stream."""
    if data == b"[DONE]":
        return True
    try:
        body = json.loads(data)
    except ValueError:
        raise ClientError("bad", f"a stream event is no JSON: {data[:80]!r}", partial=reply) from None
    if not isinstance(body, dict):
        raise ClientError("bad", f"a stream event is no object: {data[:80]!r}", partial=reply)
    if "error" in body:
        raise ClientError("cut", f"the server broke off: {message(json.dumps(body))}", partial=reply)
    reply.usage = _usage(body.get("usage")) or reply.usage
    reply.model = body.get("model") or reply.model
    for choice in body.get("choices") or ():
        delta = choice.get("delta")
        kind: Kind = "content"
        if delta is not None:
            kind, text = _delta(reply, delta)
        else:
            text = choice.get("text") or ""
            reply.text += text
        if text:
            if reply.timing.first is None:
                reply.timing.first = now
            reply.timing.last = now
            running = reply.usage.completion if body.get("usage") and reply.usage else None
            reply.events.append(Event(now - reply.timing.sent, running, kind, len(text)))
            if on_text:
                on_text(text)
        reply.finish = choice.get("finish_reason") or reply.finish
        reply.logprobs += _logprobs(choice.get("logprobs"))
    return False


def _delta(reply: Reply, delta: Mapping[str, Any]) -> tuple[Kind, str]:
    """Add one chat delta to the reply; returns what it held (all of its text, first kind wins)."""
    reasoning = delta.get("reasoning") or delta.get("reasoning_content") or ""
    content = delta.get("content") or ""
    called = ""
    for part in delta.get("tool_calls") or ():
        index = int(part.get("index") or 0)
        while len(reply.tool_calls) <= index:
            reply.tool_calls.append(ToolCall())
        call = reply.tool_calls[index]
        function = part.get("function") or {}
        call.id = call.id or part.get("id") or ""
        call.name += function.get("name") or ""
        call.arguments += function.get("arguments") or ""
        called += (function.get("name") or "") + (function.get("arguments") or "")
    reply.reasoning += reasoning
    reply.text += content
    kind: Kind = "reasoning" if reasoning else "content" if content else "tool"
    return kind, reasoning + content + called


def _logprobs(found: Any) -> list[tuple[str, float]]:
    """(token text, logprob) from the chat or the completion shape."""
    if not isinstance(found, dict):
        return []
    if found.get("content"):
        return [(str(item["token"]), float(item["logprob"])) for item in found["content"]]
    tokens, values = found.get("tokens") or [], found.get("token_logprobs") or []
    return [(str(token), float(value)) for token, value in zip(tokens, values, strict=False) if value is not None]


def fill(reply: Reply, body: dict[str, Any]) -> None:
    """Take a whole (not streamed) answer into the reply."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ClientError("bad", "the answer holds no choices", status=reply.status)
    choice = choices[0]
    said = choice.get("message") or {}
    reply.body = body
    reply.text = said.get("content") or choice.get("text") or ""
    reply.reasoning = said.get("reasoning") or said.get("reasoning_content") or ""
    for part in said.get("tool_calls") or ():
        function = part.get("function") or {}
        reply.tool_calls.append(
            ToolCall(part.get("id") or "", function.get("name") or "", function.get("arguments") or "")
        )
    reply.finish = choice.get("finish_reason")
    reply.usage = _usage(body.get("usage"))
    if reply.usage is None:
        raise ClientError(
            "no-usage", "the answer carries no usage, so its tokens cannot be counted", status=reply.status
        )
    reply.model = body.get("model") or ""
    reply.logprobs = _logprobs(choice.get("logprobs"))


def arrived(reply: Reply) -> str:
    """How much of a stream came, in words."""
    count = reply.usage.completion if reply.usage else None
    return f"{len(reply.events)} events" + (f" and {count} tokens" if count is not None else "")
