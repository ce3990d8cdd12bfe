"""What a request brought back: text, tokens by the server's own count, and when things happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["content", "reasoning", "tool"]


@dataclass(frozen=True)
class Usage:
    """Token counts as the server reports them. `cached`: prompt tokens it took from its prefix cache, if it says so."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass
class ToolCall:
    """One call as offered to the client: `arguments` is the text, not yet parsed."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Event:
    """One stream event that carried output.

    at      seconds after the request was sent
    tokens  completion tokens so far by the server's running count; None when it gives none
    kind    what the text belongs to; `size` its length in characters
    """

    at: float
    tokens: int | None
    kind: Kind
    size: int


@dataclass
class Timing:
    """Seconds on the monotonic clock of this process.

    submitted -> sent is the client's own queue (slots, connection pool, waits that a Retry-After asked for);
    what follows `sent` is service time. first and last are the first and last output event of a stream.
    """

    submitted: float
    sent: float = 0.0
    first: float | None = None
    last: float | None = None
    ended: float = 0.0
    retries: int = 0

    @property
    def queue_s(self) -> float:
        """Time before the request left this machine."""
        return self.sent - self.submitted

    @property
    def total_s(self) -> float:
        """From sent to the end of the answer."""
        return self.ended - self.sent

    @property
    def ttft_s(self) -> float | None:
        """From sent to the first output event; None when nothing came or the answer was not streamed."""
        return None if self.first is None else self.first - self.sent

    @property
    def decode_s(self) -> float | None:
        """From the first to the last output event."""
        return None if self.first is None or self.last is None else self.last - self.first


@dataclass
class Reply:
    """One answer, or the part of it that arrived (`complete` is False then)."""

    timing: Timing
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish: str | None = None
    usage: Usage | None = None
    events: list[Event] = field(default_factory=list)
    logprobs: list[tuple[str, float]] = field(default_factory=list)
    model: str = ""
    status: int = 0
    complete: bool = False
    body: Mapping[str, Any] | None = None

    def decoded(self) -> tuple[int, float] | None:
        """Tokens and seconds of the decode phase, by usage counts; None when it cannot be told.

        The clock starts at the first event whose running count is known, and what had come by then is left out. Where
        the server gives no running count, the first event is taken to hold one token.
        """
        if self.usage is None or len(self.events) < 2:
            return None
        start = next((event for event in self.events if event.tokens is not None), self.events[0])
        tokens = self.usage.completion - (start.tokens or 1)
        seconds = self.events[-1].at - start.at
        return (tokens, seconds) if tokens > 0 and seconds > 0 else None

    def rate(self) -> float | None:
        """Tokens per second of the decode phase; None when it cannot be told."""
        found = self.decoded()
        return found[0] / found[1] if found else None

    def gaps(self) -> list[float]:
        """Seconds between one output event and the next."""
        return [later.at - earlier.at for earlier, later in zip(self.events, self.events[1:], strict=False)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a file of raw runs; the request's body is not in it, nor any key."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "tool_calls": [asdict(call) for call in self.tool_calls],
            "finish": self.finish,
            "usage": asdict(self.usage) if self.usage else None,
            "complete": self.complete,
            "status": self.status,
            "queue_s": self.timing.queue_s,
            "ttft_s": self.timing.ttft_s,
            "decode_s": self.timing.decode_s,
            "total_s": self.timing.total_s,
            "retries": self.timing.retries,
            "rate": self.rate(),
            "events": [[round(event.at, 6), event.tokens, event.kind[0], event.size] for event in self.events],
        }


Problem = Literal[
    "unreachable",
    "tls",
    "timeout",
    "http",
    "busy",
    "auth",
    "model",
    "not-json",
    "not-a-stream",
    "cut",
    "no-usage",
    "bad",
]


class ClientError(Exception):
    """A request that brought no whole answer, in one line.

    `status` is the HTTP status where one came, `retry_after_s` what the server asked for, `partial` what had arrived.
    """

    def __init__(
        self,
        problem: Problem,
        line: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        partial: Reply | None = None,
        message: str = "",
    ) -> None:
        super().__init__(line)
        self.problem = problem
        self.line = line
        self.status = status
        self.retry_after_s = retry_after_s
        self.partial = partial
        self.message = message or line
