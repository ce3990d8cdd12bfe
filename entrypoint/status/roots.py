"""The folders whose files may be read through the page: the logs, the caches, vLLM's source; or SEARCH_ROOTS."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.status.reading import Root, roots_of

if TYPE_CHECKING:
    from entrypoint.boot import Boot


def roots(boot: Boot) -> tuple[Root, ...]:
    """The logs first, so that a bare file name is a log's; of the others those that exist."""
    given = boot.text("SEARCH_ROOTS", "")
    if given:
        paths = [part.strip() for part in given.split(",")]
    else:
        paths = [boot.text("CACHE_ROOT", "/cache"), *engine_source(boot.text("ENGINE_PYTHON", "python3"))]
    return roots_of([boot.text("LOG_DIR", "/logs"), *(path for path in paths if Path(path).is_dir())])


@lru_cache(maxsize=4)
def engine_source(python: str) -> tuple[str, ...]:
    """vLLM's package folder beside the interpreter that runs it, without asking (or importing) anything."""
    found = shutil.which(python)
    if found is None:
        return ()
    prefixes = dict.fromkeys((Path(found).parent.parent, Path(found).resolve().parent.parent, Path("/usr/local")))
    for prefix in prefixes:
        for folder in sorted(prefix.glob("lib/python3*/*-packages/vllm")):
            return (str(folder),)
    return ()
