"""Pictures of the report as inline SVG: lines, dots with quartiles, bars. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from gate import stats

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 16, 52
COLOURS = 6  # .c0 .. .c5 in the page's style
Scale = Callable[[float], float]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that span low..high; the first is at or below low, the last at or above high."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * place for place in range(first, last + 1)]


def shown(value: float) -> str:
    """A tick's label: 1,200 or 0.25, never 1200.0000001."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.6g}"


def _frame(inner: list[str], x: str, y: str, ys: list[float], at: Scale, title: str) -> str:
    lines = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="axis" x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>',
        f'<text class="axis" transform="translate(14 {(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>',
    ]
    for value in ys:
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at(value):.1f}" y2="{at(value):.1f}"/>')
        lines.append(
            f'<text class="tick" x="{LEFT - 8}" y="{at(value) + 4:.1f}" text-anchor="end">{shown(value)}</text>'
        )
    return "\n".join([*lines, *inner, "</svg>"])


def _below(x: float, text: str) -> str:
    """A label under the picture."""
    return f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(text)}</text>'


def _vertical(values: Sequence[float], from_zero: bool) -> tuple[list[float], Scale]:
    low, high = (0.0 if from_zero else min(values)), max(values)
    if not from_zero and high - low < 0.02 * abs(high):
        low, high = low - 0.02 * abs(high), high + 0.02 * abs(high)  # noise must not fill the picture
    ys = ticks(low, high)

    def at(value: float) -> float:
        return HEIGHT - BOTTOM - (value - ys[0]) / (ys[-1] - ys[0]) * (HEIGHT - BOTTOM - TOP)

    return ys, at


def lines(data: Mapping[str, Any], title: str, x: str, y: str) -> str:
    """`lines`: name, x, y each; x is drawn by a logarithm where it spans more than a factor of 20."""
    series = [line for line in data["lines"] if line["x"]]
    if not series:
        return ""
    xs = sorted({float(value) for line in series for value in line["x"]})
    ys, at = _vertical([float(value) for line in series for value in line["y"]], bool(data.get("from_zero")))
    bent = xs[0] > 0 and xs[-1] / xs[0] > 20

    def place(value: float) -> float:
        low, high, here = (math.log(v) if bent else v for v in (xs[0], xs[-1], value))
        return (
            (LEFT + WIDTH - RIGHT) / 2
            if high == low
            else LEFT + 12 + (here - low) / (high - low) * (WIDTH - RIGHT - LEFT - 24)
        )

    inner = []
    last = -1e9
    for value in xs if len(xs) <= 12 else ticks(xs[0], xs[-1], 8):
        if xs[0] <= value <= xs[-1] and place(value) - last > 34:
            last = place(value)
            inner.append(_below(last, shown(value)))
    for number, line in enumerate(series):
        points = [(place(float(px)), at(float(py))) for px, py in zip(line["x"], line["y"], strict=True)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        inner.append(f'<polyline class="line c{number % COLOURS}" points="{path}"/>')
        inner += [f'<circle class="dot c{number % COLOURS}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>' for px, py in points]
    return _legend(series) + _frame(inner, x, y, ys, at, title)


def _legend(series: Sequence[Mapping[str, Any]]) -> str:
    if len(series) < 2:
        return ""
    names = "".join(
        f'<span><i class="c{n % COLOURS}"></i>{escape(str(line["name"]))}</span>' for n, line in enumerate(series)
    )
    return f'<div class="legend">{names}</div>'


def strip(data: Mapping[str, Any], title: str, x: str, y: str) -> str:
    """`groups`: name, values each; every value a dot, the median and quartiles as lines."""
    groups = [group for group in data["groups"] if group["values"]]
    if not groups:
        return ""
    ys, at = _vertical([float(value) for group in groups for value in group["values"]], from_zero=True)
    width = (WIDTH - LEFT - RIGHT) / len(groups)
    inner = []
    for number, group in enumerate(groups):
        centre = LEFT + width * (number + 0.5)
        values = [float(value) for value in group["values"]]
        half = min(60.0, width * 0.3)
        for place, value in enumerate(values):
            offset = ((place * 7) % 11 / 10 - 0.5) * half  # spread sideways so that dots do not hide each other
            inner.append(
                f'<circle class="dot c{number % COLOURS}" cx="{centre + offset:.1f}" cy="{at(value):.1f}" r="3"/>'
            )
        for share, name in ((25, "quartile"), (50, "median"), (75, "quartile")):
            level = at(stats.percentile(values, share))
            inner.append(
                f'<line class="{name}" x1="{centre - half:.1f}" x2="{centre + half:.1f}" '
                f'y1="{level:.1f}" y2="{level:.1f}"/>'
            )
        inner.append(_below(centre, str(group["name"])))
    return _frame(inner, x, y, ys, at, title)


def bars(data: Mapping[str, Any], title: str, x: str, y: str) -> str:
    """`names` and `values`; bars may go below zero."""
    values = [float(value) for value in data["values"]]
    if not values:
        return ""
    ys, at = _vertical([*values, 0.0], from_zero=False)
    width = (WIDTH - LEFT - RIGHT) / len(values)
    inner = []
    for number, (name, value) in enumerate(zip(data["names"], values, strict=True)):
        left, top, bottom = LEFT + width * (number + 0.25), at(max(value, 0.0)), at(min(value, 0.0))
        inner.append(
            f'<rect class="c0" x="{left:.1f}" y="{top:.1f}" width="{width / 2:.1f}" '
            f'height="{max(1.0, bottom - top):.1f}"/>'
        )
        inner.append(_below(left + width / 4, str(name)))
    return _frame(inner, x, y, ys, at, title)


KINDS: dict[str, Callable[[Mapping[str, Any], str, str, str], str]] = {"lines": lines, "strip": strip, "bars": bars}


def draw(plot: Mapping[str, Any]) -> str:
    """A Plot (as plain data) as SVG; empty when there is nothing to draw."""
    return KINDS[plot["kind"]](plot["data"], plot["title"], plot["x"], plot["y"])
