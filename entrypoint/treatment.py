"""What the image and the mounted overlays do to the checkpoint's weights, as one tag in the group plan.

Ranks with weights treated in two ways would answer nonsense together, so boxes compare the tag before anything loads.
What was kept of one treatment (graphs, tuning results, what an overlay of somebody's own keeps there) must not meet
another, so the tag is part of the keyed caches' name (entrypoint/caches.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from core.plan import Value
from core.settings import Settings
from experimental.overlays import ROOMS, mounted, snapshot_tag
from image import weights

TAG = "WEIGHTS_TAG"


def planned(settings: Settings, environ: Mapping[str, str], rooms: Sequence[Path] = ROOMS) -> dict[str, Value]:
    """The plan's value: by the mounted overlays, their variables in `environ`, and the image's part.

    Raises Refusal for an overlay.toml that is wrong.
    """
    room, on = mounted(settings.text("GLM53_OVERLAYS"), rooms)
    own = {name: settings.text(name) for name in weights.SETTINGS}
    why = "what the image and the overlays do to the checkpoint's weights: their settings and code"
    return {TAG: Value(snapshot_tag(on, {**environ, **own}, room), "derived", why)}
