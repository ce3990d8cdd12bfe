"""Small plots as SVG text, drawn on the server: the page needs no script and nothing from elsewhere. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 240, 56
LEAST_TOP = 1e-9

Points = Sequence[tuple[float, float | None]]  # (age in seconds, value), oldest first


def spark(lines: Sequence[Points], span_s: float, top: float, gap_s: float, title: str) -> Markup:
    """One or two lines over the last `span_s` seconds, 0 to `top`; a hole where a value is None or late.

    The first line has its area filled. `title` is what a screen reader says.
    """
    parts = [f'<line class="axis" x1="0" y1="{HEIGHT - 0.5}" x2="{WIDTH}" y2="{HEIGHT - 0.5}"/>']
    for number, points in enumerate(lines):
        for run in _runs(points, gap_s):
            places = [(_x(age, span_s), _y(value, top)) for age, value in run]
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            if number == 0:
                base = f"{places[-1][0]:.1f},{HEIGHT} {places[0][0]:.1f},{HEIGHT}"
                parts.append(f'<polygon class="area" points="{text} {base}"/>')
            if len(places) == 1:
                x, y = places[0]
                parts.append(f'<circle class="line l{number}" cx="{x:.1f}" cy="{y:.1f}" r="1"/>')
            else:
                parts.append(f'<polyline class="line l{number}" points="{text}"/>')
    return Markup(
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _x(age: float, span_s: float) -> float:
    return WIDTH * max(0.0, 1 - age / span_s)


def _y(value: float, top: float) -> float:
    return HEIGHT - 1 - (HEIGHT - 4) * min(1.0, max(0.0, value / max(top, LEAST_TOP)))


def _runs(points: Points, gap_s: float) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    before: float | None = None
    for age, value in points:
        if value is None or (before is not None and before - age > gap_s):
            runs.append([])
        if value is not None:
            runs[-1].append((age, value))
        before = age
    return [run for run in runs if run]


def nice(value: float) -> float:
    """The next of 1, 2, 5 x 10^n at or above `value`: an axis that does not twitch."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    for factor in (1, 2, 5, 10):
        if value <= factor * power * (1 + 1e-9):
            return factor * power
    return 10 * power


@dataclass(frozen=True)
class Part:
    """A stretch of a bar: share of the whole 0 to 1, a CSS class, what it is."""

    share: float
    kind: str
    title: str


def bar(parts: Sequence[Part], title: str) -> Markup:
    """A stacked bar over the full width, each part with a tooltip."""
    rects, at = [], 0.0
    for part in parts:
        rects.append(
            f'<rect class="{escape(part.kind)}" x="{1000 * at:.2f}" y="0" width="{max(0.0, 1000 * part.share - 1):.2f}"'
            f' height="20"><title>{escape(part.title)}</title></rect>'
        )
        at += part.share
    return Markup(
        f'<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f"{''.join(rects)}</svg>"
    )


@dataclass(frozen=True)
class Stretch:
    """A stage on a time line: start and end in seconds from its left edge, a CSS class, what it is."""

    start: float
    end: float
    kind: str
    title: str


def lane(stretches: Sequence[Stretch], span: float, title: str) -> Markup:
    """One box's stages on a time line of `span` seconds; the shortest is still seen."""
    rects = []
    for one in stretches:
        x, width = 1000 * one.start / span, 1000 * (one.end - one.start) / span
        rects.append(
            f'<rect class="{escape(one.kind)}" x="{x:.1f}" y="3" width="{max(2.0, width - 1):.1f}" height="14">'
            f"<title>{escape(one.title)}</title></rect>"
        )
    return Markup(
        f'<svg class="lane" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'<line class="axis" x1="0" y1="10" x2="1000" y2="10"/>{"".join(rects)}</svg>'
    )
