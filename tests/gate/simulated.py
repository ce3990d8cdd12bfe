"""A simulated OpenAI server whose behaviour is exactly set, and which records its own sends.

It exists because a measuring tool can only be trusted against known truth. It runs in a process of its own
(`python -m tests.gate.simulated '{"gap_s": 0.02}'` prints its port) so that client and server share no interpreter;
both use CLOCK_MONOTONIC, so their times compare. Its record is at GET /record, its behaviour can be changed by
POST /behaviour. What it says comes from tests/gate/brain.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, fields
from typing import Any

from tests.gate import brain
from tests.gate.words import TOKENS, detokenize, tokenize

LATE = 1000  # prompt tokens after which `rescore_drift` shows
LONG_S = 0.2  # a prefill that takes longer shares the machine with others of its kind


@dataclass
class Behaviour:
    """Every figure a scenario may set. The defaults are a healthy server."""

    model: str = "glm53"
    root: str = "/model/GLM-5.3-Flash-NVFP4"
    max_model_len: int = 262144
    key: str = ""
    # time
    ttft_s: float = 0.01  # without the prompt's own prefill
    prefill_rate: float = 0.0  # uncached prompt tokens per second; 0 = no time
    gap_s: float = 0.0  # between two sends of one stream
    gap_jitter: float = 0.0  # each gap is multiplied by a uniform draw from 1 +- this
    burst: int = 1  # tokens per send
    accept: list[float] = field(default_factory=list)  # per-position chance: a send is then a verify step
    slots: int = 0  # requests served at once, the rest queue; 0 = no limit
    slow_down: float = 0.0  # gaps grow by this share per running neighbour
    stall_after: int = 0  # after so many sends...
    stall_s: float = 0.0  # ...a pause
    deep: float = 0.0  # gaps grow by this share per 1,000 tokens of prompt
    drift: float = 0.0  # gaps grow by this share per answered request
    exclusive_prefill: bool = False  # a prefill stops every other stream
    crowding: float = 0.0  # a prefill takes longer by this share per other prefill beside it
    wait_whole_answers: bool = False  # a newcomer waits until every running answer is done
    # prefix cache
    page: int = 256  # tokens; 0 = no cache
    # faults of the protocol
    usage: str = "right"  # right | lost | wrong (10 % too many)
    continuous_usage: bool = True
    reply_with: str = ""  # html | busy | cut | drop | error_event | silent | not_json
    reply_times: int = 1 << 30  # how many requests get `reply_with`
    retry_after: str = "1"
    # faults of the answer: names understood by brain.spoil
    defect: str = ""
    random_order: bool = False  # greedy answers differ from time to time
    preemptions: int = 0  # added to the counter per request
    nll_shift: float = 0.0
    rescore_drift: float = 0.0  # prompt logprobs of late tokens differ from those generated
    seed: int = 1


@dataclass
class Sent:
    """What the server knows of one request it answered: times in monotonic seconds."""

    path: str
    received: float
    prompt_tokens: int = 0
    cached: int = 0
    queued_s: float = 0.0
    sends: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # tokens in each send
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    finished: bool = False
    disconnected: bool = False


class Simulated:
    """The server. `await start()` listens on a loopback port and returns it."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.how = behaviour
        self.record: list[Sent] = []
        self.requests: list[dict[str, Any]] = []
        self.counters: dict[str, float] = {}
        self.running = 0
        self.waiting = 0
        self.answered = 0
        self._cache: set[int] = set()
        self._random = random.Random(behaviour.seed)
        self._prefills = 0
        self._no_prefill = asyncio.Event()
        self._no_prefill.set()
        self._idle = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", port, limit=1 << 26)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    def bump(self, name: str, by: float) -> None:
        self.counters[name] = self.counters.get(name, 0.0) + by

    # -- HTTP ----------------------------------------------------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                first = await reader.readexactly(1)
                received = time.monotonic()
                if not first.isalpha():  # a TLS hello: hang up, as a server without TLS does
                    break
                head = first + await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                data = json.loads(body) if body else {}
                if not await self._route(method, path, headers, data, reader, writer, received):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _plain(
        self,
        writer: asyncio.StreamWriter,
        body: Any,
        status: int = 200,
        kind: str = "application/json",
        extra: str = "",
    ) -> bool:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{extra}\r\n".encode() + data
        )
        await writer.drain()
        return True

    async def _route(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        data: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: float,
    ) -> bool:
        how = self.how
        if path == "/record":
            return await self._plain(writer, [vars(sent) for sent in self.record])
        if path == "/requests":
            return await self._plain(writer, self.requests)
        if path == "/behaviour":
            self.how = Behaviour(**{**vars(how), **data})
            self.answered, self._random = 0, random.Random(self.how.seed)
            if data.get("page") is not None:
                self._cache.clear()
            return await self._plain(writer, vars(self.how))
        if how.reply_with and how.reply_times > 0 and path != "/health":
            how.reply_times -= 1
            done = await self._misbehave(writer, path)
            if done is not None:
                return done
        if how.key and headers.get("authorization") != f"Bearer {how.key}":
            return await self._plain(writer, {"error": {"message": "Unauthorized"}}, 401)
        if path == "/health":
            return await self._plain(writer, "")
        if path == "/version":
            return await self._plain(writer, {"version": "0.32.0-simulated"})
        if path == "/v1/models":
            entry = {"id": how.model, "object": "model", "root": how.root, "max_model_len": how.max_model_len}
            return await self._plain(writer, {"object": "list", "data": [entry]})
        if path == "/metrics":
            return await self._plain(writer, self._metrics(), kind="text/plain")
        if path == "/tokenize":
            tokens = self._tokens(data)
            return await self._plain(
                writer, {"count": len(tokens), "tokens": tokens, "max_model_len": how.max_model_len}
            )
        if path == "/detokenize":
            return await self._plain(writer, {"prompt": detokenize(data["tokens"])})
        if path in ("/v1/chat/completions", "/v1/completions") and method == "POST":
            return await self._answer(path, data, reader, writer, received)
        return await self._plain(writer, {"error": {"message": f"no route {path}"}}, 404)

    async def _misbehave(self, writer: asyncio.StreamWriter, path: str) -> bool | None:
        how = self.how
        if how.reply_with == "html":
            return await self._plain(writer, "<!doctype html><html><body>router</body></html>", kind="text/html")
        if how.reply_with == "not_json":
            return await self._plain(writer, '{"choices": [', kind="application/json")
        if how.reply_with == "busy":
            return await self._plain(
                writer, {"error": {"message": "loading weights"}}, 503, extra=f"retry-after: {how.retry_after}\r\n"
            )
        if how.reply_with == "drop":
            return False
        if how.reply_with == "silent":
            await asyncio.sleep(3600)
        return None

    def _tokens(self, data: dict[str, Any]) -> list[int]:
        prompt = data.get("prompt")
        if isinstance(prompt, list):
            return [int(token) for token in prompt]
        if isinstance(prompt, str):
            return tokenize(prompt)
        return tokenize(brain.render(data))

    def _metrics(self) -> str:
        values = {"vllm:num_requests_running": self.running, "vllm:num_requests_waiting": self.waiting, **self.counters}
        values.setdefault("vllm:num_preemptions_total", 0.0)
        return "".join(f'{name}{{model_name="{self.how.model}"}} {value}\n' for name, value in values.items())

    # -- answers -------------------------------------------------------------------------------------------------

    async def _answer(
        self,
        path: str,
        data: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: float,
    ) -> bool:
        how = self.how
        self.requests.append({key: value for key, value in data.items() if key != "prompt"})
        if data.get("model") != how.model:
            return await self._plain(
                writer, {"error": {"message": f"The model {data.get('model')} does not exist"}}, 404
            )
        prompt = self._tokens(data)
        most = int(data.get("max_tokens") or how.max_model_len - len(prompt))
        if how.defect == "history" and brain.has_broken_history(data):
            return await self._plain(writer, {"error": {"message": "Expecting value: line 1 column 1"}}, 400)
        if len(prompt) + most > how.max_model_len and how.defect != "context_limit":
            text = f"This model's maximum context length is {how.max_model_len} tokens, asked {len(prompt) + most}."
            return await self._plain(writer, {"error": {"message": text, "code": 400}}, 400)
        sent = Sent(path, received, len(prompt))
        self.record.append(sent)
        try:
            async with self._slot(sent):
                said = brain.answer(data, how.defect, self._random if how.random_order else None, detokenize(prompt))
                tokens, cut = said.limited(most, how.defect)
                await self._prefill_time(prompt, sent)
                if data.get("stream"):
                    return await self._stream(path, data, said, tokens, cut, sent, prompt, reader, writer)
                await self._decode_time(len(tokens), sent)
                self._count(sent, len(tokens))
                body = self._whole(path, data, said, tokens, cut, prompt, sent)
                return await self._plain(writer, body)
        finally:
            self.answered += 1

    @contextlib.asynccontextmanager
    async def _slot(self, sent: Sent) -> AsyncIterator[None]:
        """Queue for a slot; counts running and waiting."""
        how = self.how
        self.waiting += 1
        try:
            async with self._idle:
                if how.slots:
                    await self._idle.wait_for(lambda: self.running < self.how.slots)
                elif how.wait_whole_answers:
                    await self._idle.wait_for(lambda: self.running == 0)
                self.running += 1
        finally:
            self.waiting -= 1
        sent.queued_s = time.monotonic() - sent.received
        self.bump("vllm:request_queue_time_seconds_sum", sent.queued_s)
        self.bump("vllm:request_queue_time_seconds_count", 1)
        try:
            yield
        finally:
            self.running -= 1
            async with self._idle:
                self._idle.notify_all()

    async def _prefill_time(self, prompt: list[int], sent: Sent) -> None:
        how = self.how
        page = how.page
        if page:
            keys, before = [], 0
            for end in range(page, len(prompt) + 1, page):
                before = hash((before, tuple(prompt[end - page : end])))
                keys.append(before)
            hits = next((place for place, key in enumerate(keys) if key not in self._cache), len(keys))
            sent.cached = min(hits * page, len(prompt) - 1)
            self._cache.update(keys)
        self.bump("vllm:prefix_cache_queries_total", len(prompt))
        self.bump("vllm:prefix_cache_hits_total", sent.cached)
        self.bump("vllm:prompt_tokens_total", len(prompt))
        self.bump("vllm:num_preemptions_total", how.preemptions)
        seconds = (len(prompt) - sent.cached) / how.prefill_rate if how.prefill_rate else 0.0
        if seconds < LONG_S:
            await self._no_prefill.wait()
            await _until(sent.received + sent.queued_s + how.ttft_s + seconds)
            return
        self._prefills += 1
        try:
            await asyncio.sleep(how.ttft_s)
            if how.exclusive_prefill:
                self._no_prefill.clear()
            left = seconds
            while left > 0:  # prefills share the machine's rate
                part = min(left, 0.02)
                others = self._prefills - 1
                started = time.monotonic()
                await asyncio.sleep(part)
                left -= (time.monotonic() - started) / ((1 + others) * (1 + how.crowding * others))
        finally:
            self._prefills -= 1
            if not self._prefills:
                self._no_prefill.set()

    def _gap(self, sent: Sent) -> float:
        how = self.how
        gap = (
            how.gap_s
            * (1 + how.deep * sent.prompt_tokens / 1000)
            * (1 + how.slow_down * (self.running - 1))
            * (1 + how.drift * self.answered)
        )
        return gap * (1 + how.gap_jitter * self._random.uniform(-1, 1))

    def _step(self, left: int, sent: Sent, first: bool) -> int:
        """Tokens of the next send. With drafting, prefill yields one token, and each send after it is a verify step:
        one token and the drafts accepted in a row."""
        how = self.how
        if not how.accept:
            return min(how.burst, left)
        if first:
            return 1
        kept = 0
        for chance in how.accept:
            if self._random.random() >= chance:
                break
            kept += 1
        kept = min(kept, left - 1)
        sent.steps += 1
        sent.drafted += len(how.accept)
        sent.accepted += kept
        return 1 + kept

    async def _decode_time(self, total: int, sent: Sent) -> None:
        left = total - self._step(total, sent, True) if total else 0
        at = time.monotonic()
        while left > 0:
            left -= self._step(left, sent, False)
            at += self._gap(sent)
        await _until(at)

    def _count(self, sent: Sent, tokens: int) -> None:
        sent.finished = True
        self.bump("vllm:generation_tokens_total", tokens)
        if self.how.accept:
            self.bump("vllm:spec_decode_num_drafts_total", sent.steps)
            self.bump("vllm:spec_decode_num_draft_tokens_total", sent.drafted)
            self.bump("vllm:spec_decode_num_accepted_tokens_total", sent.accepted)

    def _usage(self, sent: Sent, tokens: int) -> dict[str, Any]:
        count = round(tokens * 1.1) if self.how.usage == "wrong" else tokens
        return {
            "prompt_tokens": sent.prompt_tokens + (3 if self.how.defect == "prompt_count" else 0),
            "completion_tokens": count,
            "total_tokens": sent.prompt_tokens + count,
            "prompt_tokens_details": {"cached_tokens": sent.cached},
        }

    async def _stream(
        self,
        path: str,
        data: dict[str, Any],
        said: brain.Answer,
        tokens: list[brain.Token],
        cut: bool,
        sent: Sent,
        prompt: list[int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        how = self.how
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        options = data.get("stream_options") or {}
        counted = options.get("continuous_usage_stats") and how.continuous_usage and how.usage != "lost"
        chat = path.endswith("chat/completions")

        def event(body: Any) -> None:
            raw = b"data: " + (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n\n"
            writer.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")

        base = {"id": "sim", "object": "chat.completion.chunk", "model": how.model}
        if chat:
            event({**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        done = 0
        at = time.monotonic()
        while done < len(tokens):
            await self._no_prefill.wait()
            if reader.at_eof() or writer.is_closing():
                sent.disconnected = True
                return False
            size = self._step(len(tokens) - done, sent, done == 0)
            part = tokens[done : done + size]
            choices = said.choices(part, chat, data, done)
            now = time.monotonic()
            for number, choice in enumerate(choices):
                body: dict[str, Any] = {**base, "choices": [choice]}
                # the running count goes with the last event of a step: a step may hold reasoning and content
                if number == len(choices) - 1 and counted:
                    body["usage"] = self._usage(sent, done + size)
                event(body)
            sent.sends.append(now)
            sent.counts.append(size)
            done += size
            try:
                await writer.drain()
            except ConnectionError:
                sent.disconnected = True
                return False
            if how.reply_with in ("cut", "error_event") and done >= len(tokens) // 2:
                if how.reply_with == "error_event":
                    event({"error": {"message": "EngineCore died", "code": 500}})
                    await writer.drain()
                return False
            if done < len(tokens):
                gap = self._gap(sent) + (how.stall_s if how.stall_after and len(sent.sends) == how.stall_after else 0.0)
                at = max(at + gap, now) if gap else now
                await _until(at)
        self._count(sent, len(tokens))
        finish = "length" if cut else said.finish
        event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish} if chat else
                                   {"index": 0, "text": "", "finish_reason": finish}]})  # fmt: skip
        if options.get("include_usage") and how.usage != "lost":
            event({**base, "choices": [], "usage": self._usage(sent, len(tokens))})
        event(b"[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _whole(
        self,
        path: str,
        data: dict[str, Any],
        said: brain.Answer,
        tokens: list[brain.Token],
        cut: bool,
        prompt: list[int],
        sent: Sent,
    ) -> dict[str, Any]:
        chat = path.endswith("chat/completions")
        choice = said.whole(tokens, chat, data)
        choice["finish_reason"] = "length" if cut else said.finish
        if data.get("return_token_ids"):
            choice["token_ids"] = [token.id for token in tokens]
        if data.get("prompt_logprobs") is not None:
            scored: list[Any] = [None]
            for place, token in enumerate(prompt[1:], start=1):
                value = brain.logprob(token) - self.how.nll_shift
                if place > LATE:
                    value -= self.how.rescore_drift
                scored.append({str(token): {"logprob": value, "rank": 1, "decoded_token": TOKENS.get(token, "?")}})
            choice["prompt_logprobs"] = scored
        body: dict[str, Any] = {"id": "sim", "model": self.how.model, "choices": [choice]}
        if data.get("return_token_ids"):
            body["prompt_token_ids"] = prompt
        if data.get("prompt_logprobs") is not None:
            body["prompt_logprobs"] = choice["prompt_logprobs"] if chat else None
        if self.how.usage != "lost":
            body["usage"] = self._usage(sent, len(tokens))
        return body


async def _until(at: float) -> None:
    """Sleep to a point in time, so that a late wake-up does not add up over a stream."""
    left = at - time.monotonic()
    await asyncio.sleep(max(0.0, left))


async def _main() -> None:
    chosen = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    unknown = set(chosen) - {entry.name for entry in fields(Behaviour)}
    if unknown:
        sys.exit(f"no such behaviour: {', '.join(sorted(unknown))}")
    server = Simulated(Behaviour(**chosen))
    port = await server.start(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(port, flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(_main())
