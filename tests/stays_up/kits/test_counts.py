"""Whose fault an end was: a box counts its own, not those of a neighbour that went away."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.stays_up.kits.boxes import kits, serving, until


def test_a_neighbour_that_goes_away_counts_for_nobody(tmp_path: Path) -> None:
    with kits(tmp_path, 2, RETRIES="2") as made:
        until(lambda: serving(made) != "", made, 120)
        for _ in range(2):
            first = serving(made)
            made[1].end(signal.SIGKILL)
            made[1].start()
            until(lambda first=first: serving(made) not in ("", first), made, 120)  # type: ignore[misc]
        assert " of 2: " not in made[0].log()
        assert made[0].status()["refusals"] == []
