"""The image's chat template as transformers renders it: effort, thinking, history, tools, results, media."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from lab.model import tiny
from launcher.paths import ROOT

TEMPLATE = (ROOT / "image" / "chat-template.jinja").read_text()
USER = {"role": "user", "content": "Hi"}


def render(messages: list[dict[str, Any]], **given: Any) -> str:
    tokenizer = AutoTokenizer.from_pretrained(tiny())
    given = {"add_generation_prompt": True, **given}
    text: str = tokenizer.apply_chat_template(messages, chat_template=TEMPLATE, tokenize=False, **given)
    return text


def prompt(effort: str, rest: str) -> str:
    return f"[gMASK]<sop><|system|>Reasoning Effort: {effort}{rest}"


@pytest.mark.parametrize(
    ("given", "effort"),
    [
        ({}, "Max"),
        ({"reasoning_effort": "low"}, "Low"),
        ({"reasoning_effort": "high"}, "High"),
        ({"reasoning_effort": "max"}, "Max"),
        ({"reasoning_effort": "medium"}, "Max"),
        ({"reasoning_effort": "none"}, "Max"),
        ({"reasoning_effort": "High"}, "Max"),
        ({"thinking": True}, "Max"),
        ({"thinking": False}, "Low"),
        ({"enable_thinking": False}, "Low"),
        ({"enable_thinking": True}, "Max"),
        ({"enable_thinking": False, "thinking": True}, "Low"),
        ({"thinking": False, "reasoning_effort": "high"}, "High"),
        ({"thinking": False, "reasoning_effort": "max"}, "Low"),
        ({"enable_thinking": False, "reasoning_effort": "none"}, "Low"),
    ],
    ids=str,
)
def test_effort_and_always_an_open_think(given: dict[str, Any], effort: str) -> None:
    assert render([USER], **given) == prompt(effort, "<|user|>Hi<|assistant|><think>")


def test_without_a_generation_prompt() -> None:
    assert render([USER], add_generation_prompt=False) == prompt("Max", "<|user|>Hi")


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "A?"},
    {"role": "assistant", "content": "B.", "reasoning_content": "because"},
    {"role": "user", "content": "C?"},
    {"role": "assistant", "content": "<think>since\n</think>\nD."},
]


def test_history_keeps_what_was_thought() -> None:
    assert render(TURNS, add_generation_prompt=False) == prompt(
        "Max",
        "<|system|>Be brief.<|user|>A?<|assistant|><think>because</think>B.<|user|>C?"
        "<|assistant|><think>since</think>D.",
    )


def test_clear_thinking_forgets_turns_before_the_last_question() -> None:
    assert render(TURNS, add_generation_prompt=False, clear_thinking=True) == prompt(
        "Max",
        "<|system|>Be brief.<|user|>A?<|assistant|><think></think>B.<|user|>C?<|assistant|><think>since</think>D.",
    )
    assert "because" in render(TURNS, clear_thinking=False)


def test_an_assistant_turn_without_thoughts_gets_an_empty_pair() -> None:
    turns = [USER, {"role": "assistant", "content": "Ho"}, USER]
    assert render(turns) == prompt("Max", "<|user|>Hi<|assistant|><think></think>Ho<|user|>Hi<|assistant|><think>")


def test_reasoning_in_the_newer_field() -> None:
    turns = [USER, {"role": "assistant", "content": "Ho", "reasoning": "well"}]
    assert "<think>well</think>Ho" in render(turns)


def tool(name: str, **extra: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"Does {name} – now", **extra}}


def test_tools_have_a_system_block_of_their_own() -> None:
    text = render([USER], tools=[tool("look", strict=True), tool("hidden", defer_loading=True), tool("go")])
    assert text.count("<|system|>") == 2
    assert '\n<tools>\n{"name": "look", "description": "Does look – now"}\n{"name": "go"' in text
    assert "hidden" not in text
    assert "strict" not in text
    assert "defer_loading" not in text


def test_only_hidden_tools_are_no_tools() -> None:
    assert render([USER], tools=[tool("hidden", defer_loading=True)]) == render([USER])


def call(identity: str | None, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_calls_are_pairs_and_values_that_are_not_text_are_json() -> None:
    turns: list[dict[str, Any]] = [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("1", "go", to="a b", n=3, deep={"x": [1, "ü"]}, no=None)],
        },
    ]
    assert render(turns, add_generation_prompt=False).endswith(
        "<|assistant|><think></think><tool_call>go<arg_key>to</arg_key><arg_value>a b</arg_value>"
        "<arg_key>n</arg_key><arg_value>3</arg_value>"
        '<arg_key>deep</arg_key><arg_value>{"x": [1, "ü"]}</arg_value>'
        "<arg_key>no</arg_key><arg_value>null</arg_value></tool_call>"
    )


def results(*identities: str | None) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "content": f"r{number}", **({"tool_call_id": identity} if identity else {})}
        for number, identity in enumerate(identities)
    ]


@pytest.mark.parametrize(
    ("calls", "answers", "order"),
    [
        (("a", "b"), ("a", "b"), "r0 r1"),
        (("a", "b"), ("b", "a"), "r1 r0"),
        (("a", "b"), ("b", None), "r0 r1"),
        (("a", "b"), ("b", "c"), "r0 r1"),
        (("a", "a"), ("a", "a"), "r0 r1"),
        (("a", "b"), ("b", "b"), "r0 r1"),
        (("a", "b"), ("b",), "r0"),
        ((None, None), ("b", "a"), "r0 r1"),
    ],
    ids=str,
)
def test_results_in_the_order_of_the_calls_when_all_ids_match(calls: Any, answers: Any, order: str) -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [call(identity, "go") for identity in calls]}
    text = render([USER, asked, *results(*answers)])
    shown = "".join(f"<tool_response>{name}</tool_response>" for name in order.split())
    assert text.endswith(f"</tool_call><|observation|>{shown}<|assistant|><think>")


def test_two_rounds_of_calls_do_not_mix() -> None:
    first = {"role": "assistant", "content": "", "tool_calls": [call("a", "go"), call("b", "go")]}
    second = {"role": "assistant", "content": "", "tool_calls": [call("c", "go")]}
    text = render([USER, first, *results("b", "a"), second, *results("c")])
    assert text.count("<|observation|>") == 2
    assert text.index("r1") < text.index("r0<")


def test_media_parts_become_placeholders() -> None:
    parts = [
        {"type": "text", "text": "See "},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "video"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "text", "text": " and say."},
    ]
    assert render([{"role": "user", "content": parts}]) == prompt(
        "Max",
        "<|user|>See <|begin_of_image|><|image|><|end_of_image|><|begin_of_video|><|video|><|end_of_video|>"
        "<|begin_of_audio|><|audio|><|end_of_audio|> and say.<|assistant|><think>",
    )


def test_a_result_of_several_parts() -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [call("a", "go")]}
    answer = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}
    text = render([USER, asked, answer])
    assert "<tool_response>x<|begin_of_image|><|image|><|end_of_image|></tool_response>" in text
