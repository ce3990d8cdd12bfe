"""Short hands for the `expected` table of a patch: what each release showed when we read it."""

from __future__ import annotations

from image.patching import State

RELEASES = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
FLASHINFER = ("0.6.18", "0.7.0", "0.7.1", "0.7.2", "0.7.2.post1")

# The recipe whose observations started this list; its parts carry MIT, Apache-2.0 or no licence, so the text is ours.
RECIPE = "observed by the public GX10 recipes of this model (parts MIT or Apache-2.0, parts without a licence)"


def needed(*releases: str) -> dict[str, State]:
    """`needed` on the named releases (all when none is named)."""
    return dict.fromkeys(releases or RELEASES, "needed")


def fixed(*releases: str) -> dict[str, State]:
    """`fixed upstream` on the named releases."""
    return dict.fromkeys(releases, "fixed upstream")


def foreign(*releases: str) -> dict[str, State]:
    """`not applicable` on the named releases."""
    return dict.fromkeys(releases, "not applicable")
