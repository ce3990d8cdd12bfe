"""`./glm53 lab up --padded`: a model that does not split by 3, padded by `./glm53 pad`, with the overlay for it.

The knobs here make a lab whose boxes see what boxes at TP=3 or 6 see: a padded folder, and tp_pad on vLLM's path.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core.refusal import Refusal
from entrypoint.sizing.padding import OVERLAY
from experimental.overlays import CONTAINER, Mount, common_mounts, read
from lab.model import ODD, tiny
from launcher.paths import ROOT, cache
from launcher.verbs.pad import make

SIZES = (3, 6)


def knobs(tp: int, tree: str = "") -> dict[str, str]:
    """What all boxes are started with beside the lab's settings; `tree` as in state.Lab.

    Raises Refusal for a size that needs no padding.
    """
    if tp not in SIZES:
        cure = f"./glm53 lab up --boxes {SIZES[0]} --padded"
        raise Refusal("--padded", f"{tp} boxes", "3 or 6: the others split as they are", cure)
    path = os.pathsep.join(part for part in (str(ROOT), str(mounted((OVERLAY,))), tree) if part)
    return {"MODEL_DIR": str(model(tp)), "GLM53_OVERLAYS": OVERLAY, "PYTHONPATH": path}


def model(tp: int) -> Path:
    """The padded folder in the cache, made on first use."""
    plain = tiny(ODD)
    folder = plain.with_name(f"{plain.name}-tp{tp}")
    if not (folder / "config.json").exists():
        making = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
        make(plain, making, tp)
        making.chmod(0o755)
        _in_place(making, folder)
    return folder


def mounted(names: Sequence[str]) -> Path:
    """A folder that holds these overlays as /opt/glm53-overlays does in a container; named after its content."""
    mounts = [*common_mounts(), *(mount for name in names for mount in read(ROOT / "experimental" / name).mounts)]
    digest = hashlib.sha256()
    for file in sorted(file for mount in mounts for file in _files(ROOT / mount.source)):
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    folder = cache() / "lab" / f"overlays-{digest.hexdigest()[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
        for mount in mounts:
            _copy(mount, making)
        _in_place(making, folder)
    return folder


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    return [file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def _copy(mount: Mount, folder: Path) -> None:
    for file in _files(ROOT / mount.source):
        target = folder / Path(mount.target).relative_to(CONTAINER) / file.relative_to(ROOT / mount.source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def _in_place(making: Path, folder: Path) -> None:
    try:
        making.rename(folder)
    except OSError:  # another process was faster: its bytes are the same
        shutil.rmtree(making)
