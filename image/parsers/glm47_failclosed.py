"""vLLM plugin: the tool parser `glm47_failclosed`, which never lets a garbled tool call into a conversation.

Chosen with TOOL_PARSER=glm47_failclosed (--tool-parser-plugin, --tool-call-parser). The stock parser drops a call
with an unknown name, which ends an agent's turn with nothing, and takes any argument key, which the model then
imitates. This one buffers a call, judges it at its end, and offers a bad one again under its tool's name with the
single argument `_rejected_by_server`, which the client refuses and the agent answers by calling again.
  GLM47_FAIL_CLOSED=0        the stock behaviour
  GLM47_REJECT_AS_TEXT=1     a refused call becomes text of the answer (this ends agent loops)
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.logger import init_logger
from vllm.parser.glm47_moe import Glm47MoeParser
from vllm.tool_parsers.abstract_tool_parser import ToolParserManager
from vllm.tool_parsers.glm47_moe_tool_parser import Glm47MoeModelToolParser
from vllm.tool_parsers.utils import find_tool_properties, iter_response_function_tool_info

logger = init_logger(__name__)
SENTINEL = "_rejected_by_server"
UNKNOWN = "unknown_tool"
_SHAPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PART_OF_A_NAME = re.compile(r"[A-Za-z0-9_.-]")
_PAIR = re.compile(r"<arg_key>.*?</arg_key>\s*<arg_value>.*?</arg_value>", re.DOTALL)


def _on(name: str, default: bool) -> bool:
    text = os.environ.get(name, "")
    return default if text == "" else text not in ("0", "false", "False")


def resolve(emitted: str, offered: Collection[str]) -> str | None:
    """The offered tool that an emitted name stands for.

    Exact, else the longest offered name it begins with, provided no further character of a name follows: markup
    that ran on after a name is cut off, another tool's name never is.
    """
    if emitted in offered:
        return emitted
    begun = [name for name in offered if emitted.startswith(name) and not _PART_OF_A_NAME.match(emitted[len(name) :])]
    return max(begun, key=len, default=None)


def fault(name: str, arguments: str, offered: Collection[str], properties: Mapping[str, Any]) -> str | None:
    """Why a call may not pass, in words for the model; None when it may. Values and types are the client's matter."""
    if not _SHAPE.fullmatch(name):
        return "the function name is not a name"
    if offered and name not in offered:
        return f"there is no function {name}; there are {', '.join(sorted(offered))}"
    if not arguments.strip():
        return None
    try:
        values = json.loads(arguments)
    except ValueError as error:
        return f"the arguments are not JSON ({error})"
    if not isinstance(values, dict):
        return "the arguments are not an object"
    for key in values:
        if not _SHAPE.fullmatch(key):
            return "an argument's name is not a name"
        if properties and key not in properties:
            return f"{name} has no argument {key}; it has {', '.join(sorted(properties))}"
    return None


@dataclass(frozen=True)
class Call:
    """What is passed on for one emitted call; `reason` is set when it was refused."""

    name: str
    arguments: str
    reason: str | None = None


class FailClosedParser(Glm47MoeParser):  # type: ignore[misc]
    """The stock parser with calls judged whole."""

    _deferred_content: str  # of the stock parser: text that waits behind a tool call

    def __init__(self, tokenizer: Any, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(tokenizer, tools, **kwargs)
        self._closed = _on("GLM47_FAIL_CLOSED", True)
        self._as_text = _on("GLM47_REJECT_AS_TEXT", False)
        self._calls: dict[int, Call] = {}

    def _reset(self, initial_state: Any = None) -> None:
        super()._reset(initial_state=initial_state)
        self._calls = {}

    def _handle_arg_chunk(self, event: Any, deltas: list[Any]) -> None:
        """Keep the argument text; nothing is streamed before the call has been judged."""
        if not self._closed:
            super()._handle_arg_chunk(event, deltas)
        elif event.value:
            self._tool_slots[event.tool_index].append_args(event.value)

    def _handle_tool_end(self, event: Any, deltas: list[Any]) -> None:
        """Judge the call and emit it whole. Also reached when the output ends inside a call."""
        if not self._closed:
            super()._handle_tool_end(event, deltas)
            return
        index = event.tool_index
        if index >= len(self._tool_slots) or index in self._calls:
            return
        slot = self._tool_slots[index]
        call = self._judge(slot.name.strip(), slot.args)
        self._calls[index] = call
        slot.name, slot.name_sent = call.name, True
        if call.reason is not None:
            logger.warning("tool call to %s refused: %s", call.name, call.reason)
            if self._as_text:
                self._deferred_content += f"(The call of {call.name} was refused: {call.reason}.)"
                return
        self._ensure_tool_id(slot, call.name)
        deltas.append(
            DeltaToolCall(
                index=sum(self._passed(other) for other in self._calls.values()) - 1,
                id=slot.id,
                type="function",
                function=DeltaFunctionCall(name=call.name, arguments=call.arguments),
            )
        )

    def _events_to_delta(self, events: Any, finished: bool = False) -> Any:
        """At the end of a whole text vLLM keeps deferred text back beside calls; a refusal told as text must show."""
        delta = super()._events_to_delta(events, finished=finished)
        if finished and self._as_text and self._deferred_content:
            delta = delta or DeltaMessage()
            delta.content = (delta.content or "") + self._deferred_content
            self._deferred_content = ""
        return delta

    def _passed(self, call: Call) -> bool:
        """Whether a judged call is seen as a call, refused or not."""
        return call.reason is None or not self._as_text

    def _judge(self, emitted: str, raw: str) -> Call:
        offered = tuple(_names(self._tools))
        name = (resolve(emitted, offered) if offered else None) or emitted
        properties = find_tool_properties(self._tools, name)
        arguments, reason = self._read(raw, name)
        reason = reason or fault(name, arguments, offered, properties)
        if reason is None:
            return Call(name, arguments or "{}")
        shown = name if _SHAPE.fullmatch(name) else UNKNOWN
        return Call(shown, json.dumps({SENTINEL: reason}, ensure_ascii=False), reason)

    def _read(self, raw: str, name: str) -> tuple[str, str | None]:
        """The argument markup as JSON with the types of the tool's schema, or why it cannot be read."""
        if not raw.strip():
            return "", None
        if _PAIR.sub("", raw).strip():
            return "", "the arguments are cut off or garbled"
        try:
            converted = self._arg_converter(raw, False)
        except (ValueError, TypeError) as error:
            return "", f"the arguments cannot be read ({error})"
        return self._fix_arg_types(converted, name), None

    def _build_extracted_result(self, *deltas: Any) -> Any:
        """The whole result: the judged calls, where the stock parser would drop an unknown name again."""
        if not self._closed:
            return super()._build_extracted_result(*deltas)
        calls = [
            ToolCall(id=self._tool_slots[index].id, function=FunctionCall(name=call.name, arguments=call.arguments))
            for index, call in sorted(self._calls.items())
            if self._passed(call)
        ]
        text = "".join(delta.content for delta in deltas if delta is not None and delta.content)
        content = self._strip_content_whitespace(text, bool(calls))
        return ExtractedToolCallInformation(tools_called=bool(calls), tool_calls=calls, content=content)


def _names(tools: Sequence[Any] | None) -> Iterator[str]:
    """Names of the offered functions: chat completions (`function.name`), responses (`name`, or in a namespace)."""
    for tool in tools or ():
        if getattr(tool, "tools", None):
            yield from (name for name, _ in iter_response_function_tool_info(tool))
            continue
        name = getattr(getattr(tool, "function", None), "name", None) or getattr(tool, "name", None)
        if name:
            yield str(name)


class Glm47FailClosedToolParser(Glm47MoeModelToolParser):  # type: ignore[misc]
    """The stock adapter around FailClosedParser; its other attributes are those of the base it runs on."""

    _parser_engine_cls = FailClosedParser


FailClosedParser.tool_parser_cls = Glm47FailClosedToolParser
ToolParserManager.register_module("glm47_failclosed", force=True, module=Glm47FailClosedToolParser)
