"""The fail-closed tool parser on the real parser engine: both tables, whole and token by token."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from lab.model import tiny

PLUGIN = Path(__file__).parents[3] / "image" / "parsers" / "glm47_failclosed.py"
ToolParserManager.import_tool_parser(str(PLUGIN))
plugin = sys.modules[ToolParserManager.get_tool_parser("glm47_failclosed").__module__]
SENTINEL = "_rejected_by_server"


def tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool("bash", command="string", timeout="integer"),
    tool("run_code", code="string"),
    tool("read_file", path="string"),
    tool("anything"),
]
OFFERED = ("bash", "run_code", "read_file", "anything")
PROPERTIES: dict[str, Any] = {"command": {}, "timeout": {}}


def call(name: str, **arguments: str) -> str:
    pairs = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items())
    return f"<tool_call>{name}{pairs}</tool_call>"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(tiny())


def a_request() -> ChatCompletionRequest:
    return ChatCompletionRequest(messages=[{"role": "user", "content": "go"}], tools=TOOLS)


def whole(text: str, tokenizer: Any) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Content and calls of a non-streamed answer, as the chat endpoint makes it."""
    request = a_request()
    parser = ToolParserManager.get_tool_parser("glm47_failclosed")(tokenizer, request.tools)
    result = parser.extract_tool_calls(text, request)
    assert result.tools_called == bool(result.tool_calls)
    assert len({made.id for made in result.tool_calls}) == len(result.tool_calls)
    calls = [(made.function.name, json.loads(made.function.arguments)) for made in result.tool_calls]
    return result.content or "", calls


def streamed(text: str, tokenizer: Any) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """The same, put together from the deltas of one token each."""
    request = a_request()
    parser = ToolParserManager.get_tool_parser("glm47_failclosed")(tokenizer, request.tools)
    content, calls, seen = "", {}, []  # type: ignore[var-annotated]
    deltas = []
    for token in tokenizer.encode(text, add_special_tokens=False):
        before, after = tokenizer.decode(seen), tokenizer.decode([*seen, token])
        arguments = (before, after, after[len(before) :], seen, [*seen, token], [token])
        deltas.append(parser.extract_tool_calls_streaming(*arguments, request))
        seen = [*seen, token]
    deltas.append(parser.finish_streaming())
    for delta in deltas:
        if delta is None:
            continue
        content += delta.content or ""
        for piece in delta.tool_calls or ():
            entry = calls.setdefault(piece.index, ["", ""])
            entry[0] += piece.function.name or ""
            entry[1] += piece.function.arguments or ""
    assert sorted(calls) == list(range(len(calls))), "indices of calls have gaps"
    return content, [(name, json.loads(arguments)) for name, arguments in calls.values()]


@pytest.mark.parametrize(
    ("emitted", "name"),
    [
        ("bash", "bash"),
        ("run_code", "run_code"),
        ("bash</arg_key>x", "bash"),
        ("run_code</arg_value>", "run_code"),
        ("bash1635", None),
        ("nope", None),
        ("run_codex", None),
        ("bash.x", None),
    ],
)
def test_resolving_a_name(emitted: str, name: str | None) -> None:
    assert plugin.resolve(emitted, OFFERED) == name


def test_the_longest_offered_name_wins() -> None:
    assert plugin.resolve("read_file<x>", ("read", "read_file")) == "read_file"


@pytest.mark.parametrize(
    ("name", "arguments", "passes"),
    [
        ("bash", '{"command": "ls", "timeout": 3}', True),
        ("bash", "", True),
        ("list_files", '{"command": "ls"}', False),
        ("bash</arg_key>", '{"command": "ls"}', False),
        ("bash", '{"prefix": "ls"}', False),
        ("bash", '{"command</arg_key>": "ls"}', False),
        ("bash", '{"command": "l', False),
        ("bash", '["ls"]', False),
    ],
)
def test_judging_a_call(name: str, arguments: str, passes: bool) -> None:
    assert (plugin.fault(name, arguments, OFFERED, PROPERTIES) is None) == passes


def test_a_tool_without_declared_arguments_takes_any_well_shaped_key() -> None:
    assert plugin.fault("anything", '{"x": 1}', OFFERED, {}) is None
    assert plugin.fault("anything", '{"x y": 1}', OFFERED, {}) is not None


CASES: dict[str, tuple[str, str, list[tuple[str, dict[str, Any]]]]] = {
    "one argument": (call("bash", command="ls -l"), "", [("bash", {"command": "ls -l"})]),
    "a string and an integer": (
        call("bash", command="ls", timeout="30"),
        "",
        [("bash", {"command": "ls", "timeout": 30})],
    ),
    "no arguments": (call("bash"), "", [("bash", {})]),
    "text before": ("I look.\n" + call("read_file", path="a"), "I look.\n", [("read_file", {"path": "a"})]),
    "two good calls": (
        call("bash", command="a") + call("read_file", path="b"),
        "",
        [("bash", {"command": "a"}), ("read_file", {"path": "b"})],
    ),
    "markup after the name": (
        "<tool_call>bash</arg_key>x<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
        "",
        [("bash", {"command": "ls"})],
    ),
    "newlines between the pairs": (
        "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        "",
        [("bash", {"command": "ls"})],
    ),
    "no tool call at all": ("Just an answer.", "Just an answer.", []),
}


@pytest.mark.parametrize("read", [whole, streamed])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_good_calls_pass(case: str, read: Any, tokenizer: Any) -> None:
    text, content, calls = CASES[case]
    found, made = read(text, tokenizer)
    assert (found.rstrip(), made) == (content.rstrip(), calls)  # a whole answer is stripped by vLLM


REFUSED = {
    "cmd instead of command": (call("bash", cmd="ls"), "bash", "no argument cmd; it has command, timeout"),
    "a tool that is not offered": (call("curl", url="x"), "curl", "no function curl"),
    "a name that is none": (call("#!?", command="ls"), "unknown_tool", "not a name"),
    "another tool's longer name": (call("bash1635", command="ls"), "bash1635", "no function bash1635"),
    "cut off in a value": (
        "<tool_call>bash<arg_key>command</arg_key><arg_value>rm -rf /tm",
        "bash",
        "cut off or garbled",
    ),
    "cut off in a key": ("<tool_call>bash<arg_key>comm</tool_call>", "bash", "cut off or garbled"),
    "text where arguments belong": (
        '<tool_call>bash<arg_key></arg_key>{"command": "ls"}</tool_call>',
        "bash",
        "cut off or garbled",
    ),
}


@pytest.mark.parametrize("read", [whole, streamed])
@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_bad_calls_are_offered_again_with_the_reason(case: str, read: Any, tokenizer: Any) -> None:
    text, name, reason = REFUSED[case]
    content, calls = read(text, tokenizer)
    assert content == ""
    assert [made for made, _ in calls] == [name]
    ((_, arguments),) = calls
    assert list(arguments) == [SENTINEL]
    assert reason in arguments[SENTINEL]


@pytest.mark.parametrize("read", [whole, streamed])
def test_a_bad_call_does_not_spoil_the_good_one_before(read: Any, tokenizer: Any) -> None:
    _, calls = read(call("read_file", path="x") + call("bash", cmd="ls"), tokenizer)
    assert calls[0] == ("read_file", {"path": "x"})
    assert calls[1][0] == "bash"
    assert list(calls[1][1]) == [SENTINEL]


@pytest.mark.parametrize("read", [whole, streamed])
def test_refused_calls_as_text(read: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLM47_REJECT_AS_TEXT", "1")
    content, calls = read(call("curl", url="x") + call("bash", command="ls"), tokenizer)
    assert calls == [("bash", {"command": "ls"})]
    assert "refused: there is no function curl" in content


@pytest.mark.parametrize("read", [whole, streamed])
def test_switched_off_it_is_the_stock_parser(read: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLM47_FAIL_CLOSED", "0")
    assert read(call("bash", cmd="ls"), tokenizer)[1] == [("bash", {"cmd": "ls"})]
    assert read(call("curl", url="x"), tokenizer)[1] == []
