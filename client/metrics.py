"""Prometheus text from vLLM: label sets are summed, histograms keep their buckets.

The drafting counters are those of vLLM's speculative decoding: drafts (steps), draft tokens, accepted tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# name{labels} value; labels may hold any text between the braces
_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass
class Metrics:
    """One reading of /metrics: `sums` by name, `samples` by name and label set."""

    samples: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """True when the server publishes this series."""
        return name in self.samples

    def sum(self, name: str, **labels: str) -> float:
        """The sum over every label set of `name` that carries `labels`; 0 where absent."""
        wanted = labels.items()
        return sum(value for have, value in self.samples.get(name, []) if wanted <= have.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Value per value of one label, summed over the others."""
        out: dict[str, float] = {}
        for have, value in self.samples.get(name, []):
            key = have.get(label, "")
            out[key] = out.get(key, 0.0) + value
        return out


def parse(text: str) -> Metrics:
    """Read the text format; lines that are no samples are skipped."""
    found = Metrics()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        labels = dict(_LABEL.findall(match.group(2) or ""))
        found.samples.setdefault(match.group(1), []).append((labels, value))
    return found


@dataclass(frozen=True)
class Drafting:
    """Speculative decoding between two readings.

    steps     verify steps (`spec_decode_num_drafts_total`)
    drafted   tokens proposed; accepted: of those, kept
    """

    steps: float
    drafted: float
    accepted: float

    @property
    def tokens_per_step(self) -> float | None:
        """1 + accepted per step: what one pass of the target model yields; None without steps."""
        return 1 + self.accepted / self.steps if self.steps else None

    @property
    def acceptance(self) -> float | None:
        """Accepted share of the drafted tokens; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def drafts_per_step(self) -> float | None:
        """Tokens proposed per step; None without steps."""
        return self.drafted / self.steps if self.steps else None


def drafting(before: Metrics, after: Metrics) -> Drafting:
    """The drafting counters' change; all zero without speculation."""

    def change(name: str) -> float:
        return after.sum(name) - before.sum(name)

    return Drafting(
        steps=change("vllm:spec_decode_num_drafts_total"),
        drafted=change("vllm:spec_decode_num_draft_tokens_total"),
        accepted=change("vllm:spec_decode_num_accepted_tokens_total"),
    )
