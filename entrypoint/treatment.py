"""What the image and the mounted overlays do to the checkpoint's weights, as one tag in the group plan.

Ranks with weights treated in two ways would answer nonsense together, so boxes compare the tag before anything loads.
What was kept of one treatment (graphs, tuning results, a snapshot of processed weights) must not meet another, so the
tag is part of the keyed caches' name (entrypoint/caches.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.plan import Value
from core.settings import Settings
from experimental import overlays
from image import weights

TAG = "WEIGHTS_TAG"
# Where vLLM finds the overlays in a container, and where they lie in a clone.
ROOMS = (Path(overlays.CONTAINER) / "experimental", overlays.ROOM)


def planned(settings: Settings, environ: Mapping[str, str], rooms: tuple[Path, ...] = ROOMS) -> dict[str, Value]:
    """The plan's value: by the overlays of GLM53_OVERLAYS as the first of `rooms` holds them, their variables in
    `environ`, and the image's settings.

    Raises Refusal for an overlay.toml that cannot be read. An overlay without a folder is somebody else's and left out.
    """
    room = next((room for room in rooms if room.is_dir()), overlays.ROOM)
    names = settings.text("GLM53_OVERLAYS").split(",")
    found = [overlays.read(room / name) for name in names if (room / name / "overlay.toml").is_file()]
    own = {name: settings.text(name) for name in weights.SETTINGS}
    why = "what the image and the overlays do to the checkpoint's weights: their settings and code"
    return {TAG: Value(overlays.snapshot_tag(found, {**environ, **own}, room), "derived", why)}
