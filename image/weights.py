"""What the image changes in processed weights, beside the overlays: a part of the snapshot tag.

A snapshot of weights made with other settings or other code must not be taken for these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAYLOAD = Path(__file__).parent / "payload"
# What is installed into vllm/ and runs while weights are loaded, and the settings that it reads, with their defaults.
FILES = ("glm53_fused_scales.py", "glm53_mtp_bf16.py")
SETTINGS = {"W13_RECONCILE": "1"}


def part(environment: Mapping[str, str], payload: Path = PAYLOAD) -> dict[str, Any]:
    """Settings in force and digests of the code; an empty setting is an unset one."""
    return {
        "name": "image",
        "settings": {name: environment.get(name) or default for name, default in SETTINGS.items()},
        "code": {name: hashlib.sha256((payload / name).read_bytes()).hexdigest() for name in FILES},
    }
