"""The OpenAI client against a server whose behaviour is known: what it reads, what it times, how it fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from client.access import api_key, root_of
from client.metrics import drafting, parse
from client.openai import Client
from client.reply import ClientError, Reply
from client.sse import Events
from client.transport import retry_after
from core.refusal import Refusal
from tests.gate.simulated import Behaviour, Simulated

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
HELLO = [{"role": "user", "content": "Tell me about the harbour."}]


def against(
    work: Callable[[Client, Simulated], Awaitable[T]], *, options: dict[str, Any] | None = None, **how: Any
) -> T:
    """Run `work` with a client of a server that behaves as `how` says."""

    async def run() -> T:
        server = Simulated(Behaviour(**how))
        port = await server.start()
        try:
            async with Client(f"http://127.0.0.1:{port}/v1/", "glm53", **(options or {})) as client:
                return await work(client, server)
        finally:
            await server.close()

    return asyncio.run(run())


def failure(work: Callable[[Client, Simulated], Awaitable[Any]], **more: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        against(work, **more)
    assert "\n" not in caught.value.line
    return caught.value


async def short(client: Client, server: Simulated) -> Reply:
    return await client.chat(HELLO, max_tokens=40)


# -- what it reads -------------------------------------------------------------------------------------------------


def test_a_stream_is_counted_by_usage_not_by_events() -> None:
    """Seven tokens in one event are seven tokens."""
    reply = against(short, burst=7)
    assert reply.usage is not None
    assert reply.usage.completion == 40
    assert len(reply.events) < 10
    assert [event.tokens for event in reply.events][:2] == [7, 14]


def test_streamed_and_whole_answers_say_the_same() -> None:
    async def both(client: Client, server: Simulated) -> tuple[Reply, Reply]:
        options: dict[str, Any] = {"max_tokens": 60, "chat_template_kwargs": {"enable_thinking": False}}
        return await client.chat(HELLO, **options), await client.chat(HELLO, stream=False, **options)

    streamed, whole = against(both)
    assert (streamed.text, streamed.reasoning, streamed.finish) == (whole.text, whole.reasoning, whole.finish)
    assert streamed.usage == whole.usage or (streamed.usage and whole.usage and whole.usage.cached is not None)
    assert streamed.text
    assert streamed.reasoning


def test_a_streamed_tool_call_is_put_together() -> None:
    from smoketest.cases import TIDES

    async def call(client: Client, server: Simulated) -> Reply:
        question = [{"role": "user", "content": "High water in Stromness?"}]
        return await client.chat(question, tools=[TIDES])

    reply = against(call)
    assert reply.finish == "tool_calls"
    assert [call.name for call in reply.tool_calls] == ["tide_table"]
    assert json.loads(reply.tool_calls[0].arguments) == {"harbour": "Stromness"}


def test_completions_take_text_and_exact_token_ids() -> None:
    async def ids(client: Client, server: Simulated) -> tuple[list[int], Reply]:
        tokens = (await client.tokenize("The ferry leaves at noon."))["tokens"]
        assert await client.detokenize(tokens) == "The ferry leaves at noon."
        return tokens, await client.complete(tokens, max_tokens=3)

    tokens, reply = against(ids)
    assert reply.usage is not None
    assert reply.usage.prompt == len(tokens)
    assert reply.usage.completion == 3


def test_metrics_sum_over_label_sets() -> None:
    text = 'a_total{engine="0"} 3\na_total{engine="1",why="x}y"} 4\n# HELP a_total\nbroken line here\nb 1e3\n'
    found = parse(text)
    assert found.sum("a_total") == 7
    assert found.sum("a_total", engine="1") == 4
    assert found.by("a_total", "engine") == {"0": 3, "1": 4}
    assert found.sum("missing") == 0


def test_drafting_is_the_change_of_the_counters() -> None:
    async def twice(client: Client, server: Simulated) -> tuple[Any, Simulated]:
        before = await client.metrics()
        await short(client, server)
        return drafting(before, await client.metrics()), server

    change, server = against(twice, accept=[0.9, 0.5, 0.2])
    assert change.steps == server.record[-1].steps > 0
    assert change.drafted == 3 * change.steps
    # the first token comes from the prompt's own pass, before any step
    assert change.tokens_per_step == pytest.approx(39 / change.steps)


def test_events_survive_any_split() -> None:
    raw = 'data: {"a": "바다"}\r\n\r\n: keep-alive\n\ndata: one\ndata: two\n\ndata:[DONE]\n\n'.encode()
    for size in range(1, 20):
        events = Events()
        found = [data for start in range(0, len(raw), size) for data in events.feed(raw[start : start + size])]
        assert found == ['{"a": "바다"}'.encode(), b"one\ntwo", b"[DONE]"]


# -- what it times -------------------------------------------------------------------------------------------------


def test_queue_and_service_are_apart() -> None:
    """With one slot the second request waits here: its queue is long, its time to first token is not."""

    async def two(client: Client, server: Simulated) -> list[Reply]:
        return list(await asyncio.gather(short(client, server), short(client, server)))

    first, second = against(two, options={"max_concurrent": 1}, gap_s=0.01)
    assert second.timing.queue_s >= first.timing.total_s * 0.9
    assert first.timing.ttft_s is not None
    assert second.timing.ttft_s is not None
    assert second.timing.ttft_s < second.timing.queue_s


def test_rate_leaves_out_what_the_first_event_brought() -> None:
    """Counts of the server's record over times as they arrived: however busy the machine is."""

    async def recorded(client: Client, server: Simulated) -> tuple[Reply, list[int]]:
        return await short(client, server), server.record[0].counts

    reply, counts = against(recorded, burst=4, gap_s=0.02)
    assert counts[0] == 4
    assert reply.rate() == pytest.approx(sum(counts[1:]) / (reply.events[-1].at - reply.events[0].at))


def test_cancel_closes_the_connection() -> None:
    """The server sees that nobody listens any more, and the next request works."""

    async def cancelled(client: Client, server: Simulated) -> tuple[bool, Reply]:
        task = asyncio.create_task(client.chat(HELLO, max_tokens=2000))
        while not (server.record and len(server.record[0].sends) > 3):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        until = time.monotonic() + 2
        while not server.record[0].disconnected and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return server.record[0].disconnected, await short(client, server)

    seen, after = against(cancelled, gap_s=0.02)
    assert seen
    assert after.complete


# -- how it fails --------------------------------------------------------------------------------------------------


def test_retry_after_is_honoured() -> None:
    reply = against(short, options={"retry_s": 5}, reply_with="busy", reply_times=2, retry_after="0.2")
    assert reply.timing.retries == 2
    assert reply.timing.queue_s >= 0.4
    assert reply.complete


def test_retry_after_reads_seconds_and_dates() -> None:
    assert retry_after("7") == 7
    assert retry_after("Wed, 21 Oct 2015 07:28:10 GMT", now=1445412480.0) == 10
    assert retry_after("soon") is None
    assert retry_after(None) is None


def test_busy_without_patience_is_one_line() -> None:
    error = failure(short, reply_with="busy", retry_after="30")
    assert error.problem == "busy"
    assert error.retry_after_s == 30
    assert "loading weights" in error.line


@pytest.mark.parametrize(
    ("how", "problem", "words"),
    [
        ({"reply_with": "html"}, "not-json", "HTML instead of JSON"),
        ({"reply_with": "drop"}, "cut", "cut"),
        ({"reply_with": "cut", "gap_s": 0.001}, "cut", "cut"),
        ({"reply_with": "error_event", "gap_s": 0.001}, "cut", "EngineCore died"),
        ({"usage": "lost"}, "no-usage", "no usage"),
        ({"key": "right"}, "auth", "API_KEY"),
        ({"model": "other"}, "http", "does not exist"),
    ],
)
def test_every_failure_has_its_own_line(how: dict[str, Any], problem: str, words: str) -> None:
    error = failure(short, **how)
    assert error.problem == problem
    assert words in error.line


def test_a_cut_stream_keeps_what_arrived() -> None:
    error = failure(short, reply_with="cut", gap_s=0.001)
    assert error.partial is not None
    assert not error.partial.complete
    assert error.partial.events
    assert error.partial.usage is not None


def test_silence_ends_at_the_time_allowed() -> None:
    error = failure(short, options={"read_s": 0.3}, reply_with="silent")
    assert error.problem == "timeout"


def test_a_deadline_covers_the_whole_answer() -> None:
    async def slow(client: Client, server: Simulated) -> Reply:
        return await client.chat(HELLO, max_tokens=500, deadline_s=0.3)

    error = failure(slow, gap_s=0.02)
    assert error.problem == "timeout"
    assert error.partial is not None
    assert error.partial.events


def test_nobody_there() -> None:
    async def run() -> None:
        async with Client("http://127.0.0.1:9") as client:
            await client.models()

    with pytest.raises(ClientError) as caught:
        asyncio.run(run())
    assert caught.value.problem == "unreachable"


def test_tls_to_a_plain_port_says_tls() -> None:
    async def run() -> None:
        server = Simulated(Behaviour())
        port = await server.start()
        try:
            async with Client(f"https://127.0.0.1:{port}") as client:
                await client.models()
        finally:
            await server.close()

    with pytest.raises(ClientError) as caught:
        asyncio.run(run())
    assert caught.value.problem == "tls"


def test_the_wrong_model_lists_the_right_ones() -> None:
    async def other(client: Client, server: Simulated) -> str:
        client.model = "gpt"
        return await client.served()

    error = failure(other)
    assert error.problem == "model"
    assert "serves glm53" in error.line


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["http://box:8002", "http://box:8002/", "http://box:8002/v1", "box:8002/v1/"])
def test_any_spelling_of_the_base_is_the_same(text: str) -> None:
    assert root_of(text) == "http://box:8002"


def test_a_bad_base_is_refused() -> None:
    for text in ("", "ftp://box", "http://"):
        with pytest.raises(Refusal):
            root_of(text)


def test_the_key_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert api_key({"API_KEY": "from-environment", "API_KEY_FILE": str(file)}) == "from-file"
    assert api_key({"API_KEY": "from-environment"}) == "from-environment"
    assert api_key({}) is None
    with pytest.raises(Refusal):
        api_key({"API_KEY_FILE": str(tmp_path / "absent")})


def test_importing_the_client_brings_no_heavy_package() -> None:
    code = "import sys, client.openai; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "typer", "jinja2", "pydantic"} & set(done.stdout.split())
