"""vLLM's statistics lines, made readable: one line an update, with the drafts' acceptance beside the speed.

Pure: lines in, lines out. vLLM logs throughput and drafting in two lines of one update; they are put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_STAMP = re.compile(r"\b(\d\d-\d\d) (\d\d:\d\d:\d\d)\b")
_ENGINE = re.compile(r"\b(Engine \d+):")
_FIELDS = {
    "prefill": re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s"),
    "decode": re.compile(r"Avg generation throughput: ([\d.]+) tokens/s"),
    "running": re.compile(r"Running: (\d+) reqs"),
    "waiting": re.compile(r"Waiting: (\d+) reqs"),
    "deferred": re.compile(r"Deferred: (\d+) reqs"),
    "preempted": re.compile(r"Preemptions: (\d+)"),
    "kv": re.compile(r"KV cache usage: ([\d.]+)%"),
    "hits": re.compile(r"Prefix cache hit rate: ([\d.]+)%"),
}
_DRAFTS = {
    "length": re.compile(r"Mean acceptance length: ([\d.]+|nan)"),
    "rate": re.compile(r"Avg Draft acceptance rate: ([\d.]+|nan)%"),
    "positions": re.compile(r"Per-position acceptance rate: ([\d., ]+)"),
}


@dataclass
class Update:
    """One statistics update of an engine."""

    time: str
    engine: str
    values: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """`12:00:10  prefill 4934.0 tok/s  decode 117.3 tok/s  running 4  waiting 0  KV 12.1%  drafts 4.1 (58%)`."""
        get = self.values.get
        parts = [f"{self.time:8}"]
        if self.engine not in ("", "Engine 000"):
            parts.append(self.engine)
        parts.append(f"prefill {float(get('prefill', '0')):8.1f} tok/s")
        parts.append(f"decode {float(get('decode', '0')):7.1f} tok/s")
        parts.append(f"running {get('running', '0'):>3}")
        parts.append(f"waiting {get('waiting', '0'):>3}")
        parts.append(f"KV {float(get('kv', '0')):5.1f}%")
        if "hits" in self.values:
            parts.append(f"prefix hits {float(get('hits', '0')):5.1f}%")
        for name in ("deferred", "preempted"):
            if name in self.values:
                parts.append(f"{name} {get(name)}")
        if "length" in self.values:
            rate = f" ({float(get('rate', 'nan')):.0f}% accepted)" if "rate" in self.values else ""
            parts.append(f"tokens a step {float(get('length', '0')):.2f}{rate}")
        if "positions" in self.values:
            shares = [float(text) for text in get("positions", "").split(",") if text.strip()]
            parts.append("by position " + " ".join(f"{100 * share:.0f}" for share in shares))
        return "  ".join(parts)


class Merger:
    """Puts an update's two lines together. The second may be late, or missing (no drafting): then flush() says so."""

    def __init__(self) -> None:
        self.held: Update | None = None

    def feed(self, text: str) -> list[str]:
        """The readable lines that are complete after one more line of the log."""
        if self.held is not None and "SpecDecoding metrics:" in text:
            self.held.values.update(_taken(_DRAFTS, text))
            return self.flush()
        if not _FIELDS["decode"].search(text):
            return []
        done = self.flush()
        stamp, engine = _STAMP.search(text), _ENGINE.search(text)
        self.held = Update(stamp.group(2) if stamp else "", engine.group(1) if engine else "", _taken(_FIELDS, text))
        return done

    def flush(self) -> list[str]:
        """The update that is still held, if any."""
        held, self.held = self.held, None
        return [held.line()] if held else []


def readable(lines: Iterable[str]) -> Iterator[str]:
    """One line an update, for a log that has ended."""
    merger = Merger()
    for text in lines:
        yield from merger.feed(text)
    yield from merger.flush()


def _taken(patterns: dict[str, re.Pattern[str]], text: str) -> dict[str, str]:
    found = ((name, pattern.search(text)) for name, pattern in patterns.items())
    return {name: match.group(1) for name, match in found if match}
