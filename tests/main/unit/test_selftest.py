"""The self-test against servers that answer rightly, wrongly, late, not at all, or with broken counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from client.metrics import parse
from entrypoint.door import free_port
from entrypoint.selftest import QUESTIONS, Verdict, drafter_line, run

RIGHT = {"Japan": "Tokyo", "12": "19", "opposite": "down"}


class Server:
    """An OpenAI-like server whose answers are a function of the request."""

    def __init__(self, answer: Callable[[str, int], Any], metrics: str | None = "") -> None:
        self.answer = answer
        self.metrics = metrics
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.port = free_port()

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers.get("authorization", ""))
        given = self.answer(body["messages"][0]["content"], len(self.asked))
        if isinstance(given, Response):
            return given
        if isinstance(given, float):
            await asyncio.sleep(given)
            given = "late"
        content, _, reasoning = str(given).partition("|")
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})

    async def counters(self, request: Request) -> Response:
        if self.metrics is None:
            return Response(status_code=500)
        # A reading after the questions has twice the counts of the one before.
        text = self.metrics.replace("STEPS", str(10 * (len(self.asked) > 0)))
        return PlainTextResponse(text.replace("KEPT", str(37 * (len(self.asked) > 0))))

    async def test(self, **more: Any) -> Verdict:
        routes = [Route("/v1/chat/completions", self.chat, methods=["POST"]), Route("/metrics", self.counters)]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="critical")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        self.said: list[str] = []
        try:
            return await run(f"http://127.0.0.1:{self.port}", "glm53", "key", self.said.append, **more)
        finally:
            server.should_exit = True
            server.force_exit = True
            await task


def right(text: str, number: int) -> str:
    del number
    return next(answer for word, answer in RIGHT.items() if word in text)


def verdict(server: Server, **more: Any) -> Verdict:
    return asyncio.run(server.test(**more))


def test_right_answers_pass_and_each_is_said() -> None:
    server = Server(right)
    told = verdict(server)
    assert told.passed
    assert [line.split()[0] for line in told.lines] == ["ok", "ok", "ok", "info"]
    assert tuple(server.said) == told.lines
    assert server.keys == {"Bearer key"}
    assert all(body["temperature"] == 0 and body["max_tokens"] >= 800 for body in server.asked)


@pytest.mark.parametrize("wrong", ["119", "190", "19.5", "1,190", "-19", "the answer", "", "|19", "19th", "0.19"])
def test_a_number_that_only_contains_the_answer_is_wrong(wrong: str) -> None:
    told = verdict(Server(lambda text, number: wrong if "12" in text else right(text, number)))
    assert not told.passed
    assert not told.expected_failure
    assert [line.split()[0] for line in told.lines] == ["ok", "FAIL", "ok", "info"]


@pytest.mark.parametrize(
    "good", ["19", "19.", "**19**", "12 + 7 = 19", "=19", "Nineteen", "It is 19, of course.", "(19)"]
)
def test_the_answer_may_stand_in_a_sentence(good: str) -> None:
    assert QUESTIONS[1].accepts(good)


def test_every_failure_is_listed() -> None:
    told = verdict(Server(lambda text, number: "banana"))
    assert [line.split()[0] for line in told.lines] == ["FAIL", "FAIL", "FAIL", "info"]


def test_only_a_timeout_is_tried_again() -> None:
    server = Server(lambda text, number: 5.0 if number <= 2 else right(text, number))
    told = verdict(server, answer_s=0.3, pause_s=0.01)
    assert told.passed
    assert len(server.asked) == 5

    broken = Server(lambda text, number: Response(status_code=500) if number == 1 else right(text, number))
    told = verdict(broken)
    assert not told.passed
    assert len(broken.asked) == 3
    assert "HTTP 500" in told.lines[0]


def test_three_timeouts_are_a_failure() -> None:
    server = Server(lambda text, number: 5.0 if "Japan" in text else right(text, number))
    told = verdict(server, answer_s=0.2, pause_s=0.01)
    assert not told.passed
    assert len(server.asked) == 5
    assert told.lines[0].startswith("FAIL capital of Japan")


def test_a_server_that_is_not_there_is_a_failure_not_a_crash() -> None:
    told = asyncio.run(run(f"http://127.0.0.1:{free_port()}", "glm53", None, lambda line: None))
    assert not told.passed
    assert not told.expected_failure
    assert len(told.lines) == 4


def test_random_weights_fail_as_expected_but_silence_does_not() -> None:
    server = Server(lambda text, number: "xq#")
    assert verdict(server, lab=True).expected_failure
    assert all(body["max_tokens"] <= 32 for body in server.asked)
    silent = verdict(Server(lambda text, number: Response(status_code=500)), lab=True)
    assert not silent.passed
    assert not silent.expected_failure


COUNTERS = """
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0"} STEPS
vllm:spec_decode_num_draft_tokens_total{engine="0"} 70
vllm:spec_decode_num_accepted_tokens_total{engine="0"} KEPT
""" + "\n".join(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{k}"}} 1' for k in range(7))


def test_the_drafter_is_judged_by_tokens_per_step() -> None:
    told = verdict(Server(right, COUNTERS))
    assert told.passed
    assert told.lines[-1] == "ok drafter: 4.70 tokens a step of at most 8"


def test_a_drafter_whose_tokens_are_never_kept_fails() -> None:
    told = verdict(Server(right, COUNTERS.replace("KEPT", "0")))
    assert not told.passed
    assert told.lines[-1] == "FAIL drafter: 1.00 tokens a step of at most 8, expected 2.00 or more"


def test_counters_that_cannot_be_read_are_said_and_do_not_fail_the_model() -> None:
    told = verdict(Server(right, None))
    assert told.passed
    assert told.lines[-1] == "info drafter: /metrics could not be read, not judged"


def test_a_draft_width_that_varies_counts_steps_and_not_tokens() -> None:
    before = parse("vllm:spec_decode_num_drafts_total 0\nvllm:spec_decode_num_draft_tokens_total 0")
    after = parse(
        "vllm:spec_decode_num_drafts_total 10\nvllm:spec_decode_num_draft_tokens_total 30\n"
        "vllm:spec_decode_num_accepted_tokens_total 15"
    )
    assert drafter_line(before, after) == (True, "ok drafter: 2.50 tokens a step of at most 4")
