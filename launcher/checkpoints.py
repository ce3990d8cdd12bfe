"""The checkpoint and the drafter on this box: is the folder whole, and what must be mounted for the engine to see it.

A Hugging Face cache keeps files as links into blobs/ beside snapshots/: mounted alone, such a folder is full of dead
links. Then the model's whole cache folder is mounted and the engine is told the snapshot inside it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import model as facts
from core.refusal import Refusal
from entrypoint.knobs import ranks
from entrypoint.sizing import packs
from entrypoint.sizing.padding import unpadded, without_overlay


@dataclass(frozen=True)
class Checkpoint:
    """What can be downloaded: knob of its host folder, repository, size, licence, and how to do without it."""

    knob: str
    repository: str
    size: str
    note: str
    mounted: str


MODEL = Checkpoint("MODEL_HOST_DIR", "nvidia/GLM-5.3-Flash-NVFP4", "181.3 GiB", "", "/models/target")
DRAFTER = Checkpoint(
    "DFLASH_HOST_DIR",
    "incoai/GLM-5.3-Flash-DFlash2",
    "2.2 GiB",
    " Its licence is CC BY-NC-ND 4.0, non-commercial; SPEC_METHOD=mtp in compose/.env leaves it out.",
    "/models/drafter",
)


@dataclass(frozen=True)
class Mounted:
    """`host` is mounted; the files are in `inside` of it ("" is the folder itself)."""

    host: Path
    inside: str

    def seen(self, checkpoint: Checkpoint) -> str:
        """The folder's path in the container."""
        return f"{checkpoint.mounted}/{self.inside}" if self.inside else checkpoint.mounted


def locate(folder: Path, checkpoint: Checkpoint) -> Mounted:
    """What to mount for the checkpoint at `folder`. Raises Refusal when it is missing, partial or all dead links."""
    if not folder.is_dir():
        raise _missing(folder, checkpoint, "no such folder")
    mounted = _cached(folder.resolve(), checkpoint) or Mounted(folder, "")
    _whole(mounted.host / mounted.inside, folder, checkpoint)
    return mounted


def unfit(mounted: Mounted, checkpoint: Checkpoint, tp: str, overlays: Collection[str]) -> list[Refusal]:
    """Why these files cannot be split over `tp` ranks: heads that do not divide, or padding that nothing would do."""
    folder = mounted.host / mounted.inside
    config = facts.read_json(folder / "config.json") or {}
    # beside the whole cache folder: inside it Hugging Face's own tools would take it for a snapshot
    target = f"{mounted.host}-tp{ranks(tp)}"
    found = [unpadded(config, tp, folder, knob=checkpoint.knob, target=target)]
    if checkpoint is MODEL:
        found.append(without_overlay(config, overlays, folder))
    return [refusal for refusal in found if refusal is not None]


def pack_warnings(mounted: Mounted) -> list[str]:
    """What is to be said about the upload of the model that lies there: nothing about one that nobody has named."""
    found = packs.rows(facts.load(), mounted.host / mounted.inside)
    return [f"{row.name}: {row.seen}. {row.cure}" for row in found if row.level == "WARN"]


def _cached(folder: Path, checkpoint: Checkpoint) -> Mounted | None:
    """The Hugging Face cache folder behind `folder`, when its files are links that lead out of it."""
    if (folder / "snapshots").is_dir():
        return Mounted(folder, f"snapshots/{_revision(folder, checkpoint)}")
    config = folder / "config.json"
    if not config.is_symlink():
        return None
    target = config.resolve()
    if target.is_relative_to(folder):
        return None
    if not target.exists():
        raise _missing(folder, checkpoint, f"a dead link: config.json -> {config.readlink()}")
    cache = target.parent.parent
    for snapshot in sorted((cache / "snapshots").glob("*")):
        if (snapshot / "config.json").resolve() == target:
            return Mounted(cache, f"snapshots/{snapshot.name}")
    raise Refusal(
        checkpoint.knob,
        f"{folder}, whose files are links to {target.parent}",
        "files, or a Hugging Face cache folder (models--.../snapshots/...)",
        f"Set {checkpoint.knob} to where the files are, or copy them: cp -rL {folder} ELSEWHERE",
    )


def _revision(cache: Path, checkpoint: Checkpoint) -> str:
    main = cache / "refs" / "main"
    snapshots = sorted(path.name for path in (cache / "snapshots").iterdir() if path.is_dir())
    if main.exists() and main.read_text().strip() in snapshots:
        return main.read_text().strip()
    if len(snapshots) == 1:
        return snapshots[0]
    shown = f"{len(snapshots)} snapshots and no refs/main"
    cure = f"Set {checkpoint.knob} to one of {cache / 'snapshots'}/*"
    raise Refusal(checkpoint.knob, shown, "one snapshot", cure)


def _whole(files: Path, folder: Path, checkpoint: Checkpoint) -> None:
    """config.json and every file that the index names, none of them empty or a dead link."""
    if not (files / "config.json").is_file():
        raise _missing(folder, checkpoint, f"no config.json in {files}")
    index = files / "model.safetensors.index.json"
    if index.is_file():
        names = facts.index_files(index.read_bytes())
        if not names:
            raise _missing(folder, checkpoint, f"{index.name} that is no weight index")
    else:
        names = sorted(path.name for path in files.glob("*.safetensors"))
    lost = [name for name in names if not (files / name).is_file() or (files / name).stat().st_size == 0]
    if not names:
        raise _missing(folder, checkpoint, f"no *.safetensors in {files}")
    if lost:
        raise _missing(folder, checkpoint, f"{len(lost)} of {len(names)} weight files missing ({lost[0]}, ...)")


def _missing(folder: Path, checkpoint: Checkpoint, seen: str) -> Refusal:
    return Refusal(
        checkpoint.knob,
        f"{folder}: {seen}",
        f"{checkpoint.repository}, {checkpoint.size}",
        f"hf download {checkpoint.repository} --local-dir {folder}  (resumes), or set {checkpoint.knob} in compose/.env"
        f" to where it is.{checkpoint.note}",
    )
