"""With the patch, <think> is split off whatever a request says about thinking; without it the trace leaks."""

from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParserManager

from lab.model import tiny

OUTPUT = "Two and two.\n</think>The answer is 4."
SWITCHES = [{}, {"thinking": False}, {"enable_thinking": False}, {"thinking": True}, {"enable_thinking": True}]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(tiny())


def request_with(switches: dict[str, bool]) -> ChatCompletionRequest:
    return ChatCompletionRequest(messages=[{"role": "user", "content": "2+2?"}], chat_template_kwargs=switches)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("name", ["glm45", "glm47"])
def test_whole(name: str, switches: dict[str, bool], tokenizer: Any) -> None:
    parser = ReasoningParserManager.get_reasoning_parser(name)(tokenizer, chat_template_kwargs=switches)
    reasoning, content = parser.extract_reasoning(OUTPUT, request_with(switches))
    assert reasoning.strip() == "Two and two."
    assert content == "The answer is 4."


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_token_by_token(switches: dict[str, bool], tokenizer: Any) -> None:
    parser = ReasoningParserManager.get_reasoning_parser("glm45")(tokenizer, chat_template_kwargs=switches)
    reasoning, content = [], []
    seen: list[int] = []
    for token in tokenizer.encode(OUTPUT, add_special_tokens=False):
        before, after = tokenizer.decode(seen), tokenizer.decode([*seen, token])
        delta = parser.extract_reasoning_streaming(before, after, after[len(before) :], seen, [*seen, token], [token])
        seen = [*seen, token]
        if delta is not None:
            reasoning.append(delta.reasoning or "")
            content.append(delta.content or "")
    rest = parser.finish_streaming()
    if rest is not None:
        content.append(rest.content or "")
    assert "".join(reasoning).strip() == "Two and two."
    assert "".join(content) == "The answer is 4."
