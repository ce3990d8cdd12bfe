"""A row: one line of a check, rendered alike on the page, in the log, by doctor and by the fabric report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["FAIL", "WARN", "ok", "info"]
ORDER: tuple[Level, ...] = ("FAIL", "WARN", "ok", "info")


@dataclass(frozen=True)
class Row:
    """`seen` against `expected`, the `cure` and a `link` into docs/troubleshooting.md."""

    name: str
    level: Level
    seen: str
    expected: str = ""
    cure: str = ""
    link: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        return asdict(self)


def warnings_first(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Rows by level, order kept within a level."""
    return tuple(sorted(rows, key=lambda row: ORDER.index(row.level)))


def first_to_fix(rows: tuple[Row, ...]) -> Row | None:
    """The row a user should act on first: the first FAIL, else the first WARN, else None."""
    ordered = warnings_first(rows)
    return ordered[0] if ordered and ordered[0].level in ("FAIL", "WARN") else None
