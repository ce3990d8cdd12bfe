"""An asynchronous client of an OpenAI-compatible server, as vLLM serves it.

No proxy is ever used (a box on the LAN is not behind one). Nothing is retried unless `retry_s` says so.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from client import metrics as prometheus
from client.reply import ClientError, Event, Kind, Reply, Timing, ToolCall, Usage
from client.sse import Events
from core.refusal import Refusal

T = TypeVar("T")
Message = Mapping[str, Any]
Say = Callable[[str], None]
BUSY = (429, 503)
DEFAULT_PAUSE_S = 1.0  # between tries when a busy server names no Retry-After


def api_key(environ: Mapping[str, str] | None = None, file: str | None = None) -> str | None:
    """The key: `file`, else API_KEY_FILE, else API_KEY, else OPENAI_API_KEY; None without any.

    Raises Refusal when a named file cannot be read or is empty.
    """
    have = os.environ if environ is None else environ
    path = file or have.get("API_KEY_FILE")
    if path:
        try:
            text = Path(path).read_text().strip()
        except OSError as error:
            raise Refusal("API_KEY_FILE", f"{path} ({error.strerror})", "a readable file", f"ls -l {path}") from None
        if not text:
            raise Refusal("API_KEY_FILE", f"{path} is empty", "a file that holds the key", f"Write the key into {path}")
        return text
    return have.get("API_KEY") or have.get("OPENAI_API_KEY") or None


def root_of(base_url: str) -> str:
    """`http://host:8002` from any spelling of the base: a trailing slash or /v1 goes. Raises Refusal."""
    text = base_url.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise Refusal("base URL", base_url or "nothing", "http://host:port", "Try http://127.0.0.1:8002")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


class Client:
    """One server. Use as `async with Client(base) as client:`.

    base_url       with or without /v1; paths outside /v1 (/tokenize, /metrics) are taken from its root
    model          served name; empty = the first that /v1/models lists, looked up once
    key            API key; never shown
    read_s         longest silence between two bytes of an answer
    connect_s      longest time to a connection
    max_concurrent requests beyond it wait here, and that wait is counted as queue, not as service
    retry_s        how long 429 and 503 are tried again, as Retry-After asks; 0 = never
    """

    def __init__(
        self,
        base_url: str,
        model: str = "",
        *,
        key: str | None = None,
        read_s: float = 300.0,
        connect_s: float = 10.0,
        max_concurrent: int | None = None,
        retry_s: float = 0.0,
    ) -> None:
        self.root = root_of(base_url)
        self.model = model
        self.retry_s = retry_s
        self.read_s = read_s
        self._slots = asyncio.Semaphore(max_concurrent) if max_concurrent else None
        secure = self.root.startswith("https")
        verify: ssl.SSLContext | bool = ssl.create_default_context() if secure else False
        self._http = httpx.AsyncClient(
            base_url=self.root,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(read_s, connect=connect_s, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=128),
            verify=verify,
            trust_env=False,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    # -- what the server is ------------------------------------------------------------------------------------

    async def models(self) -> list[dict[str, Any]]:
        """The entries of /v1/models. Raises ClientError."""
        body = await self._json("GET", "/v1/models")
        entries = body.get("data")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and "id" in entry for entry in entries):
            raise ClientError("bad", f"{self.root}/v1/models gave no list of models")
        return entries

    async def served(self) -> str:
        """The model's name to ask for. Raises ClientError when the chosen one is not served or none is."""
        names = [str(entry["id"]) for entry in await self.models()]
        if self.model and self.model not in names:
            raise ClientError("model", f"{self.root} serves {', '.join(names) or 'nothing'}, not {self.model!r}")
        if not names:
            raise ClientError("model", f"{self.root} serves no model")
        self.model = self.model or names[0]
        return self.model

    async def health(self) -> bool:
        """True when /health answers 200. Raises ClientError when unreachable."""
        async with self._send("GET", "/health", None, Timing(time.perf_counter())) as response:
            await response.aread()
            return response.status_code == 200

    async def metrics(self) -> prometheus.Metrics:
        """One reading of /metrics, label sets apart. Raises ClientError."""
        timing = Timing(time.perf_counter())

        async def once() -> prometheus.Metrics:
            async with self._send("GET", "/metrics", None, timing) as response:
                await self._refuse(response, "/metrics")
                return prometheus.parse((await response.aread()).decode("utf-8", "replace"))

        return await self._patiently(once, timing)

    async def version(self) -> str:
        """vLLM's version, empty when the server does not tell."""
        try:
            return str((await self._json("GET", "/version")).get("version", ""))
        except ClientError as error:
            if error.status is not None or error.problem in ("not-json", "bad"):
                return ""
            raise

    # -- tokens ------------------------------------------------------------------------------------------------

    async def tokenize(
        self, prompt: str | None = None, *, messages: Sequence[Message] | None = None, **options: Any
    ) -> dict[str, Any]:
        """/tokenize: `count`, `tokens`, `max_model_len`. Raises ClientError."""
        body: dict[str, Any] = {"model": self.model, **options}
        body.update({"messages": list(messages)} if messages is not None else {"prompt": prompt or ""})
        return await self._json("POST", "/tokenize", body)

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """/detokenize. Raises ClientError."""
        return str((await self._json("POST", "/detokenize", {"model": self.model, "tokens": list(tokens)}))["prompt"])

    # -- answers -----------------------------------------------------------------------------------------------

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        stream: bool = True,
        on_text: Say | None = None,
        deadline_s: float | None = None,
        **options: Any,
    ) -> Reply:
        """One chat answer; `options` go into the body. Raises ClientError, with what arrived in `.partial`."""
        body = {"model": self.model, "messages": list(messages), **options}
        return await self._answer("/v1/chat/completions", body, stream, on_text, deadline_s)

    async def complete(
        self,
        prompt: str | Sequence[int],
        *,
        stream: bool = True,
        on_text: Say | None = None,
        deadline_s: float | None = None,
        **options: Any,
    ) -> Reply:
        """One text completion of a string or of exact token ids. Raises ClientError."""
        body = {"model": self.model, "prompt": prompt if isinstance(prompt, str) else list(prompt), **options}
        return await self._answer("/v1/completions", body, stream, on_text, deadline_s)

    async def _answer(
        self, path: str, body: dict[str, Any], stream: bool, on_text: Say | None, deadline_s: float | None
    ) -> Reply:
        reply = Reply(Timing(time.perf_counter()))
        if stream:
            # continuous_usage_stats: vLLM then puts the running count into every event (others ignore it)
            body = {**body, "stream": True}
            body.setdefault("stream_options", {"include_usage": True, "continuous_usage_stats": True})
        try:
            async with asyncio.timeout(deadline_s):
                if self._slots is None:
                    await self._tries(path, body, stream, on_text, reply)
                else:
                    async with self._slots:
                        await self._tries(path, body, stream, on_text, reply)
        except TimeoutError:
            reply.timing.ended = time.perf_counter()
            raise ClientError(
                "timeout", f"{self.root}{path} was not done after {deadline_s:g} s", partial=reply
            ) from None
        return reply

    async def _tries(self, path: str, body: dict[str, Any], stream: bool, on_text: Say | None, reply: Reply) -> None:
        await self._patiently(lambda: self._one(path, body, stream, on_text, reply), reply.timing)

    async def _one(self, path: str, body: dict[str, Any], stream: bool, on_text: Say | None, reply: Reply) -> None:
        try:
            async with self._send("POST", path, body, reply.timing) as response:
                reply.status = response.status_code
                await self._refuse(response, path)
                if stream:
                    await self._read_stream(response, path, reply, on_text)
                else:
                    _fill(reply, _parsed(await response.aread(), response, self.root + path))
        except ClientError as error:
            reply.timing.ended = time.perf_counter()
            error.partial = error.partial or reply
            raise
        reply.timing.ended = time.perf_counter()
        reply.complete = True

    async def _read_stream(self, response: httpx.Response, path: str, reply: Reply, on_text: Say | None) -> None:
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            data = await response.aread()
            _parsed(data, response, self.root + path)  # HTML and broken JSON have their own line
            raise ClientError("not-a-stream", f"{self.root}{path} answered {kind or 'no content type'}, not a stream")
        events = Events()
        done = False
        async for chunk in response.aiter_raw():
            now = time.perf_counter()
            for data in events.feed(chunk):
                done = _take(reply, data, now, on_text) or done
        for data in events.end():
            done = _take(reply, data, time.perf_counter(), on_text) or done
        if not done:
            raise ClientError("cut", f"{self.root}{path}: the stream ended without [DONE], after {_arrived(reply)}")
        if reply.usage is None:
            raise ClientError(
                "no-usage", f"{self.root}{path}: the stream carried no usage, so tokens cannot be counted"
            )

    # -- HTTP --------------------------------------------------------------------------------------------------

    async def _patiently(self, work: Callable[[], Awaitable[T]], timing: Timing) -> T:
        """Do `work`, again while the server is busy and `retry_s` lasts, as Retry-After asks."""
        while True:
            try:
                return await work()
            except ClientError as error:
                waited = time.perf_counter() - timing.submitted
                pause = error.retry_after_s if error.retry_after_s is not None else DEFAULT_PAUSE_S
                if error.problem != "busy" or waited + pause > self.retry_s:
                    raise
                timing.retries += 1
                await asyncio.sleep(pause)

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        timing = Timing(time.perf_counter())

        async def once() -> dict[str, Any]:
            async with self._send(method, path, body, timing) as response:
                await self._refuse(response, path)
                return _parsed(await response.aread(), response, self.root + path)

        return await self._patiently(once, timing)

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, timing: Timing
    ) -> AsyncIterator[httpx.Response]:
        """The response with its body unread. Every transport failure becomes one ClientError."""

        async def mark(event: str, info: Mapping[str, Any]) -> None:
            # service starts when the request's first byte leaves: waits for a connection are ours, not the server's
            if event.endswith("send_request_headers.started"):
                timing.sent = time.perf_counter()

        content = None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {"content-type": "application/json"} if content is not None else {}
        url = self.root + path
        timing.sent = time.perf_counter()
        try:
            async with self._http.stream(
                method, path, content=content, headers=headers, extensions={"trace": mark}
            ) as response:
                yield response
        except httpx.ConnectTimeout:
            raise ClientError("unreachable", f"{url}: no connection (or no TLS handshake) in time") from None
        except httpx.ConnectError as error:
            words = str(error)
            if "SSL" in words or (url.startswith("https") and not words):  # wordless: hung up during the handshake
                raise ClientError("tls", f"{url}: TLS failed ({words or 'the server does not speak it'})") from None
            raise ClientError("unreachable", f"{url}: cannot connect ({_plain(error)})") from None
        except httpx.TimeoutException:
            raise ClientError("timeout", f"{url}: no byte for {self.read_s:g} s") from None
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            raise ClientError("cut", f"{url}: the connection was cut ({_plain(error)})") from None
        except httpx.DecodingError as error:
            raise ClientError("bad", f"{url}: the body could not be decoded ({_plain(error)})") from None

    async def _refuse(self, response: httpx.Response, path: str) -> None:
        """Raise the one clear line for any status but 200."""
        status = response.status_code
        if status == 200:
            return
        text = (await response.aread()).decode("utf-8", "replace")
        message = _message(text)
        wait = retry_after(response.headers.get("retry-after"))
        line = f"{self.root}{path}: HTTP {status}" + (f" ({message})" if message else "")
        if status in BUSY:
            line += f"; it asks to come back in {wait:g} s" if wait is not None else ""
            raise ClientError("busy", line, status=status, retry_after_s=wait, message=message)
        if status in (401, 403):
            line += "; set API_KEY_FILE or API_KEY"
            raise ClientError("auth", line, status=status, message=message)
        raise ClientError("http", line, status=status, message=message)


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds of a Retry-After header: a number or an HTTP date; None when absent or unreadable."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, when.timestamp() - (time.time() if now is None else now))


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _message(text: str) -> str:
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


def _parsed(data: bytes, response: httpx.Response, url: str) -> dict[str, Any]:
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


def _take(reply: Reply, data: bytes, now: float, on_text: Say | None) -> bool:
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
        raise ClientError("cut", f"the server broke off: {_message(json.dumps(body))}", partial=reply)
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


def _fill(reply: Reply, body: dict[str, Any]) -> None:
    """Take a whole (not streamed) answer into the reply."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ClientError("bad", "the answer holds no choices", status=reply.status)
    choice = choices[0]
    message = choice.get("message") or {}
    reply.body = body
    reply.text = message.get("content") or choice.get("text") or ""
    reply.reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    for part in message.get("tool_calls") or ():
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


def _arrived(reply: Reply) -> str:
    count = reply.usage.completion if reply.usage else None
    return f"{len(reply.events)} events" + (f" and {count} tokens" if count is not None else "")
