"""An asynchronous client of an OpenAI-compatible server, as vLLM serves it.

No proxy is ever used (a box on the LAN is not behind one). Nothing is retried unless `retry_s` says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from client import metrics as prometheus
from client.access import root_of
from client.body import Say, arrived, fill, parsed, take
from client.reply import ClientError, Reply, Timing
from client.sse import Events
from client.transport import Transport

Message = Mapping[str, Any]


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
        self._slots = asyncio.Semaphore(max_concurrent) if max_concurrent else None
        self._http = Transport(self.root, key, read_s, connect_s, retry_s)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._http.close()

    # -- what the server is ------------------------------------------------------------------------------------

    async def models(self) -> list[dict[str, Any]]:
        """The entries of /v1/models. Raises ClientError."""
        body = await self._http.json("GET", "/v1/models")
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
        async with self._http.send("GET", "/health", None, Timing(time.perf_counter())) as response:
            await response.aread()
            return response.status_code == 200

    async def metrics(self) -> prometheus.Metrics:
        """One reading of /metrics, label sets apart. Raises ClientError."""
        timing = Timing(time.perf_counter())

        async def once() -> prometheus.Metrics:
            async with self._http.send("GET", "/metrics", None, timing) as response:
                await self._http.refuse(response, "/metrics")
                return prometheus.parse((await response.aread()).decode("utf-8", "replace"))

        return await self._http.patiently(once, timing)

    async def version(self) -> str:
        """vLLM's version, empty when the server does not tell."""
        try:
            return str((await self._http.json("GET", "/version")).get("version", ""))
        except ClientError as error:
            if error.status is not None or error.problem in ("not-json", "bad"):
                return ""
            raise

    # -- tokens ------------------------------------------------------------------------------------------------

    async def tokenize(
        self, prompt: str | None = None, *, messages: Sequence[Message] | None = None, **options: Any
    ) -> dict[str, Any]:
        """/tokenize: `count`, `tokens`, mostly `max_model_len`. Raises ClientError, also without tokens."""
        body: dict[str, Any] = {"model": self.model, **options}
        body.update({"messages": list(messages)} if messages is not None else {"prompt": prompt or ""})
        found = await self._http.json("POST", "/tokenize", body)
        lacking = [name for name, kind in (("count", int), ("tokens", list)) if not isinstance(found.get(name), kind)]
        if lacking:
            raise ClientError("bad", f"{self.root}/tokenize tells no {', no '.join(lacking)}: is it vLLM that answers?")
        return found

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """/detokenize. Raises ClientError."""
        body = {"model": self.model, "tokens": list(tokens)}
        return str((await self._http.json("POST", "/detokenize", body))["prompt"])

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
        await self._http.patiently(lambda: self._one(path, body, stream, on_text, reply), reply.timing)

    async def _one(self, path: str, body: dict[str, Any], stream: bool, on_text: Say | None, reply: Reply) -> None:
        try:
            async with self._http.send("POST", path, body, reply.timing) as response:
                reply.status = response.status_code
                await self._http.refuse(response, path)
                if stream:
                    await self._read_stream(response, path, reply, on_text)
                else:
                    fill(reply, parsed(await response.aread(), response, self.root + path))
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
            parsed(data, response, self.root + path)  # HTML and broken JSON have their own line
            raise ClientError("not-a-stream", f"{self.root}{path} answered {kind or 'no content type'}, not a stream")
        events = Events()
        done = False
        async for chunk in response.aiter_raw():
            now = time.perf_counter()
            for data in events.feed(chunk):
                done = take(reply, data, now, on_text) or done
        for data in events.end():
            done = take(reply, data, time.perf_counter(), on_text) or done
        if not done:
            raise ClientError("cut", f"{self.root}{path}: the stream ended without [DONE], after {arrived(reply)}")
        if reply.usage is None:
            raise ClientError(
                "no-usage", f"{self.root}{path}: the stream carried no usage, so tokens cannot be counted"
            )
