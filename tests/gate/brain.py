"""What the simulated server says: right answers to the prompts of smoketest and gate, and named ways to be wrong.

`defect` spoils exactly one ability, so that a test can ask whether exactly the right check turns red.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from smoketest import picture
from tests.gate.words import pieces, token_id

_SEA = (
    "north wind carries salt over the harbour wall while crews mend nets count barrels name ropes and wait for slack "
    "water before the ferry turns its bow toward open sound with lamps lit along every quay"
)
WORDS = _SEA.split()
NUMBER_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
BRIEF = "A short look at the question is enough here."
SCRIPT_TEXT = {
    "Korean": "바다는 아침마다 다른 색으로 빛나고 배는 조용히 항구를 떠난다. 사람들은 부두에서 손을 흔든다.",
    "Japanese": "朝の港では漁師たちが網を直し、静かな海に小さな船が並んでいる。波の音が町まで届く。",
    "Chinese": "清晨的港口很安静,渔民在岸边修补渔网,小船随着波浪轻轻摇动。远处的灯塔还亮着。",
    "Arabic": "في الصباح يخرج الصيادون إلى البحر وتعود القوارب محملة بالسمك قبل غروب الشمس.",
    "Hindi": "सुबह समुद्र शांत रहता है और मछुआरे अपनी नावें लेकर दूर तक जाते हैं।",
    "Russian": "Утром в гавани тихо, рыбаки чинят сети, а лодки качаются на слабой волне у причала.",
    "Greek": "Το πρωί το λιμάνι είναι ήσυχο και οι ψαράδες διορθώνουν τα δίχτυα τους.",
    "Thai": "ตอนเช้าท่าเรือเงียบสงบ ชาวประมงซ่อมแหและเรือเล็กลอยอยู่ริมฝั่ง",
}


@dataclass(frozen=True)
class Token:
    """One token of an answer: `call` numbers the tool call it belongs to; `name` marks a call's first token."""

    id: int
    piece: str
    kind: Literal["reasoning", "content", "tool"]
    call: int = 0
    name: bool = False


@dataclass
class Answer:
    """Reasoning, text and calls, cut into tokens in that order."""

    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else "stop"

    def tokens(self) -> list[Token]:
        out = [Token(token_id(piece), piece, "reasoning") for piece in pieces(self.reasoning)]
        out += [Token(token_id(piece), piece, "content") for piece in pieces(self.text)]
        for number, (name, arguments) in enumerate(self.calls):
            out.append(Token(token_id(name), name, "tool", number, True))
            out += [Token(token_id(piece), piece, "tool", number) for piece in pieces(arguments)]
        return out or [Token(token_id("."), ".", "content")]

    def limited(self, most: int, defect: str) -> tuple[list[Token], bool]:
        """The tokens within the budget, and whether it cut the answer."""
        tokens = self.tokens()
        if defect == "max_tokens":
            most += 2
        return tokens[:most], len(tokens) > most

    def choices(self, part: list[Token], chat: bool, data: dict[str, Any], place: int) -> list[dict[str, Any]]:
        """Stream choices for a few tokens: one per kind, as vLLM's deltas are."""
        out: list[dict[str, Any]] = []
        if not chat:
            return [{"index": 0, "text": "".join(token.piece for token in part), "finish_reason": None}]
        groups: list[list[Token]] = []
        for token in part:
            if groups and (groups[-1][0].kind, groups[-1][0].call) == (token.kind, token.call) and not token.name:
                groups[-1].append(token)
            else:
                groups.append([token])
        for group in groups:
            first, text = group[0], "".join(token.piece for token in group)
            delta: dict[str, Any]
            if first.kind == "tool":
                function = {"name": first.piece, "arguments": text[len(first.piece) :]} if first.name else {}
                function = function or {"arguments": text}
                call: dict[str, Any] = {"index": first.call, "function": function}
                if first.name:
                    call.update(id=f"call-{first.call}", type="function")
                delta = {"tool_calls": [call]}
            else:
                delta = {first.kind: text}
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
            if data.get("logprobs"):
                choice["logprobs"] = {"content": [{"token": t.piece, "logprob": logprob(t.id)} for t in group]}
            out.append(choice)
        return out

    def whole(self, tokens: list[Token], chat: bool, data: dict[str, Any]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""

        def text(kind: str) -> str:
            return "".join(token.piece for token in tokens if token.kind == kind)

        choice: dict[str, Any] = {"index": 0}
        if data.get("logprobs"):
            scored = [{"token": token.piece, "logprob": logprob(token.id)} for token in tokens]
            choice["logprobs"] = {"content": scored}
            if not chat:
                choice["logprobs"] = {
                    "tokens": [token.piece for token in tokens],
                    "token_logprobs": [logprob(token.id) for token in tokens],
                }
        if not chat:
            choice["text"] = "".join(token.piece for token in tokens)
            return choice
        message: dict[str, Any] = {"role": "assistant", "content": text("content") or None}
        if text("reasoning"):
            message["reasoning"] = text("reasoning")
        if self.calls and any(token.kind == "tool" for token in tokens):
            message["tool_calls"] = [
                {"id": f"call-{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for n, (name, arguments) in enumerate(self.calls)
            ]
        choice["message"] = message
        return choice


def logprob(token: int) -> float:
    """A fixed value per token id, from -3 to 0."""
    return -3.0 * (hashlib.blake2b(str(token).encode(), digest_size=2).digest()[0] / 255)


def text_of(content: Any) -> str:
    """The text parts of a message."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if part.get("type") == "text")


def render(data: dict[str, Any]) -> str:
    """The prompt as the chat template would write it."""
    out = [json.dumps(data["tools"])] if data.get("tools") else []
    for message in data.get("messages") or []:
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        images = sum(part.get("type") == "image_url" for part in message["content"] or [] if isinstance(part, dict))
        out.append(f"<{message['role']}>" + "#" * 64 * images + text_of(message.get("content")) + calls)
    return "\n".join(out) + "\n<assistant>"


def thinking(data: dict[str, Any]) -> bool:
    """As the chat template reads it."""
    chosen = data.get("chat_template_kwargs") or {}
    return not (chosen.get("enable_thinking") is False or chosen.get("thinking") is False)


def filler(seed: str, length: int = 6000) -> str:
    """Words that go on for longer than any budget, the same for the same prompt."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(length))


def enough(data: dict[str, Any]) -> int:
    """Words for the whole budget: more would cost the server time that no scenario asked for."""
    return min(6000, int(data.get("max_tokens") or 6000))


# Questions whose greedy answer `order` changes from time to time.
UNSTEADY = ("Describe what the log shows", "read the tide of quay-25")


def answer(data: dict[str, Any], defect: str, order: random.Random | None, prompt: str) -> Answer:
    """The answer to a request. `order` makes greedy answers differ from time to time."""
    if "messages" not in data:
        return Answer(text=filler(prompt[-2000:], enough(data)))
    said = _say(data, defect, prompt)
    on = thinking(data)
    if defect == "thinking_off":  # the switch does nothing
        on = True
    effort = data.get("reasoning_effort") or (data.get("chat_template_kwargs") or {}).get("reasoning_effort")
    if defect == "effort":
        effort = "high"
    if not said.reasoning:
        said.reasoning = filler("effort", 40 if effort == "low" else 160) if on else BRIEF
    if defect == "thinking_on" and thinking(data):
        said.reasoning = ""
    if defect == "think_tag" and not thinking(data):
        said.text, said.reasoning = f"<think>{said.reasoning}</think>{said.text}", ""
    if order is not None and any(words in prompt for words in UNSTEADY) and order.random() < 0.4:
        said.text = said.text.replace(" the ", " that ", 1)
        said.reasoning = said.reasoning.replace(" the ", " that ", 1)
    return said


Rule = Callable[[re.Match[str], dict[str, Any], str, str], Answer | None]


def _last_user(data: dict[str, Any]) -> dict[str, Any]:
    return next(message for message in reversed(data["messages"]) if message["role"] == "user")


def _say(data: dict[str, Any], defect: str, prompt: str) -> Answer:
    question = text_of(_last_user(data)["content"])
    if data.get("tools") and data.get("tool_choice") != "none":
        from tests.gate import toolbrain

        found = toolbrain.answer(data, question, defect)
        if found is not None:
            return found
    for pattern, rule in RULES:
        match = re.search(pattern, question, re.DOTALL)
        if match:
            said = rule(match, data, defect, prompt)
            if said is not None:
                return said
    text = filler(question, enough(data))
    if defect == "repeat" and "lighthouse" in question:
        text = " ".join(WORDS[:12]) * 500
    if defect == "speed_chars":
        text = text[:200] + "\ufffd" + text[200:]
    return Answer(text=text)


def _product(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    value = int(match[1]) * int(match[2])
    return Answer(text=str(value + (defect == "product")))


def _count(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    lines = [str(number) for number in range(1, int(match[1]) + 1)]
    if defect == "count":
        lines[137] = "1338"
    return Answer(text="\n".join(lines))


def _words(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    return Answer(text=", ".join(NUMBER_WORDS * 5))


def _short(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    return Answer(text="17")


def _capital(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    return Answer(text="Auckland" if defect == "fact" else "Wellington")


def _cell(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer | None:
    content = _last_user(data)["content"]
    if isinstance(content, str):
        return None
    line = next(row for row in picture.ROWS if row[0] == match[1])
    column = picture.HEADER.index(match[2]) + (1 if defect == "image" else 0)
    return Answer(text=line[column % len(line)])


def _needle(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer | None:
    found = re.search(rf"access code of the {match[1]} beacon is ([0-9A-Z]+-[0-9A-Z]+)\.", prompt)
    if found is None:
        return Answer(text="I cannot find it.")
    return Answer(text=found[1][:-1] + "?" if defect == "needle" else found[1])


def _script(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer | None:
    text = SCRIPT_TEXT.get(match[1])
    if text is None:
        return None
    if defect == "scripts" and match[1] == "Korean":
        text = text[:20] + "\ufffd\ufffd" + text[22:]
    return Answer(text=text * 2)


def _sum(match: re.Match[str], data: dict[str, Any], defect: str, prompt: str) -> Answer:
    value = int(match[1]) + int(match[2])
    return Answer(text=f"Adding them gives the total.\n#### {value + (defect == 'gsm8k')}")


RULES: tuple[tuple[str, Rule], ...] = (
    (r"row (\w+), column (\w+)", _cell),
    (r"(\d+) times (\d+)", _product),
    (r"from 1 to (\d+), one per line", _count),
    (r"numbers from one to \w+ as words", _words),
    (r"capital city of New Zealand", _capital),
    (r"Answer with the (?:number|time) only", _short),
    (r"Name one colour", _short),
    (r"access code of the (\w+) beacon\?", _needle),
    (r"in (\w+), in its own script", _script),
    (r"has (\d+) .* gets (\d+) more", _sum),
)


def has_broken_history(data: dict[str, Any]) -> bool:
    """Does an earlier call carry arguments that are no JSON?"""
    for message in data.get("messages") or []:
        for call in message.get("tool_calls") or []:
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                return True
    return False
