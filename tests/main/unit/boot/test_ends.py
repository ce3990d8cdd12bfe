"""Which ends of a generation keep evidence and hurry the engine's end."""

from __future__ import annotations

import pytest

from entrypoint.run import breaks


@pytest.mark.parametrize(
    "reason",
    [
        "127.0.0.13 refuses connections: its kit is gone",
        "the engine of this box ended",
        "127.0.0.14 started again (the engine of this box ended)",
        "127.0.0.12 is silent, and the engine gives no token",
    ],
)
def test_a_rank_that_is_gone_breaks_the_generation(reason: str) -> None:
    assert breaks(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "this box was told to end",
        "127.0.0.12 is leaving: told to end",
        "this box refuses",
        "127.0.0.13 is refused: this box refuses",
    ],
)
def test_who_is_told_to_end_or_refuses_breaks_nothing(reason: str) -> None:
    assert not breaks(reason)
