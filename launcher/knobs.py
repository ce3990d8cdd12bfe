"""The knobs that launcher reads: on the host, before Docker; those of scope `launcher` stay there."""

from __future__ import annotations

from typing import Any

from core.knob import Knob

IMAGE = "glm53:local"
MODEL_HOST_DIR = "/srv/models/glm-5.3-flash-nvfp4"
DFLASH_HOST_DIR = "/srv/models/glm-5.3-flash-dflash2"


def _absolute(value: Any) -> str | None:
    return None if str(value).startswith("/") else "an absolute path"


KNOBS: tuple[Knob, ...] = (
    Knob(
        "IMAGE",
        "text",
        IMAGE,
        "The image every box runs; image/build.sh writes this tag unless told another.",
        scope="launcher",
    ),
    Knob(
        "MODEL_HOST_DIR",
        "path",
        MODEL_HOST_DIR,
        "Where nvidia/GLM-5.3-Flash-NVFP4 lies on this box's own disk; a Hugging Face cache folder works too.",
        measured="181.3 GiB on disk (reported)",
        scope="launcher",
        check=_absolute,
    ),
    Knob(
        "DFLASH_HOST_DIR",
        "path",
        DFLASH_HOST_DIR,
        "Where the drafter incoai/GLM-5.3-Flash-DFlash2 lies on this box; SPEC_METHOD=mtp or none does without it.",
        measured="2.2 GiB on disk, CC BY-NC-ND 4.0, non-commercial (reported)",
        scope="launcher",
        check=_absolute,
    ),
    Knob(
        "CACHE_HOME",
        "path",
        None,
        "Host directory for compiled kernels; unset is the volume glm53_cache.",
        scope="launcher",
        check=_absolute,
    ),
    Knob(
        "ALLOW_STOCK",
        "flag",
        "0",
        "1 lets the engine start with vLLM's stock kernels, without any overlay; ./glm53 --stock sets it.",
        measured="about half the speed (reported)",
    ),
    Knob(
        "GLM53_OVERLAYS",
        "text",
        None,
        "The overlays that are mounted, in order; set by ./glm53, so that the boxes can compare them. Not for .env.",
    ),
)
