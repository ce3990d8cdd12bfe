"""The engine's caches on disk: what may not survive a boot is removed before the engine starts."""

from __future__ import annotations

import shutil
from pathlib import Path

from core.plan import Command
from core.refusal import Refusal
from entrypoint.serve.environment import AUTOTUNE_DIR


def forget_autotune(command: Command) -> bool:
    """Remove FlashInfer's autotune results of the last boot; True when there were some.

    At TP > 1 rank 0 alone saves them: at the next boot it skips a collective that the other ranks wait in (reported).
    The serve builder names the folder only where it is to be forgotten. Raises Refusal when it cannot be removed.
    """
    path = command.environment.get(AUTOTUNE_DIR)
    if path is None:
        return False
    try:
        shutil.rmtree(Path(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        seen = f"{path}: {error.strerror}"
        raise Refusal("CACHE_ROOT", seen, "a folder whose autotune results can be removed", f"rm -r {path}") from None
    return True
