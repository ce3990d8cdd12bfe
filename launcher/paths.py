"""Where things lie: the repository and the one cache directory outside it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cache() -> Path:
    """The declared cache: GLM53_CACHE, else $XDG_CACHE_HOME/glm53, else ~/.cache/glm53."""
    chosen = os.environ.get("GLM53_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glm53"
