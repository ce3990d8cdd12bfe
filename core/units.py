"""Sizes and durations as people write them, and back."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1024**4, "K": KIB, "M": MIB, "G": GIB}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$")


def parse_size(text: str) -> int:
    """Bytes of `26GiB`, `1.5 MiB` or `27917287424`; ValueError names what is accepted."""
    match = _SIZE.match(text.strip())
    unit = match.group(2).upper() if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError("a size such as 26GiB, 512MiB or a number of bytes")
    return int(float(match.group(1)) * _UNITS[unit])


def show_size(count: int) -> str:
    """`26GiB`, `1.5GiB`, `3.46GiB`: the largest unit that fits, at most two decimals."""
    for name, unit in (("TiB", 1024**4), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= unit:
            return f"{count / unit:.2f}".rstrip("0").rstrip(".") + name
    return f"{count}B"


def show_seconds(seconds: float) -> str:
    """`4.2s`, `3m05s`, `2h10m`: short enough for a progress line."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
