"""The engine's caches on disk: where they may lie, and what may not survive a boot."""

from __future__ import annotations

import shutil
from pathlib import Path

from core.plan import Command
from core.refusal import Refusal
from entrypoint.serve.environment import AUTOTUNE_DIR

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "afs", "beegfs", "fuse.sshfs", "fuse.ceph"}
)


def filesystem(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, from the text of /proc/mounts; "" when no line fits."""
    best, found = -1, ""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].replace("\\040", " "))
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, found = len(point.parts), words[2]
    return found


def network_refusal(path: Path, mounts: str) -> Refusal | None:
    """Compiled kernels on a network file system: two boxes would write one cache, and locks do not hold there."""
    kind = filesystem(path, mounts)
    if kind not in NETWORK:
        return None
    return Refusal(
        "CACHE_ROOT", f"{path} on {kind}", "a disk of this box", "Set CACHE_HOME to a folder on a local disk."
    )


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
