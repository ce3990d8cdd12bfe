"""Which upload of the model lies in a folder, and is it known to be good or bad? By hash, else by its name.

model.toml lists the packs. `files` there holds the sha256 of config.json and of the weight index of an upload, filled
in by who has seen the files; both must be those of one upload, as two packs may share a config. A folder padded by
`./glm53 pad` has a config of its own and the index of the original: there the index decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.row import Row
from entrypoint.sizing.padding import MARK
from model import Model, read_json

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
WRITTEN = {"config": CONFIG, "index": INDEX}


@dataclass(frozen=True)
class Seen:
    """What is known of a folder: its name as path and config tell it, sha256 by key of WRITTEN, padded or not."""

    name: str
    digests: Mapping[str, str]
    padded: bool = False


def look(folder: Path) -> Seen:
    """Read what `judge` needs; a missing file is left out. Hashes are streamed: an index is some ten MB."""
    digests = {}
    for key, name in WRITTEN.items():
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
    config = read_json(folder / CONFIG) or {}
    name = f"{folder} {folder.resolve()} {config.get('_name_or_path', '')}".replace("--", "/")  # models--owner--name
    return Seen(name, digests, MARK in {**config, **(config.get("text_config") or {})})


def judge(model: Model, seen: Seen) -> tuple[Row, ...]:
    """A row about the pack, or none for one that nobody has named. A hash speaks louder than a name."""
    packs = model["pack"]
    by_hash = next((pack for pack in packs if any(_is(seen, files) for files in pack["files"])), None)
    if by_hash is not None:
        return (_row(model, by_hash, "by hash of config and index"),)
    named = next((pack for pack in packs if pack["tell"].lower() in seen.name.lower()), None)
    if named is None:
        return ()
    if named["verdict"] == "good" and named["files"] and seen.digests:
        what = f"named like {named['name']}, but config and index are of no upload that is known"
        cure = f"download it again, or tell us the hashes: sha256sum {CONFIG} {INDEX}"
        return (Row("checkpoint pack", "WARN", what, "the hashes of model.toml", cure),)
    return (_row(model, named, "by name only: no hash of it is known"),)


def rows(model: Model, folder: Path) -> tuple[Row, ...]:
    """`judge` of what lies in `folder`."""
    return judge(model, look(folder))


def _is(seen: Seen, files: Mapping[str, str]) -> bool:
    wanted = {key: digest for key, digest in files.items() if not (seen.padded and key == "config")}
    return bool(wanted) and all(seen.digests.get(key) == digest for key, digest in wanted.items())


def _row(model: Model, pack: Mapping[str, Any], how: str) -> Row:
    text = f"{pack['name']}: {pack['why']} ({how})"
    if pack["verdict"] == "good":
        return Row("checkpoint pack", "info", text)
    return Row("checkpoint pack", "WARN", text, f"a pack without that fault, as {model['target.name']}", _cure(model))


def _cure(model: Model) -> str:
    return f"Set MODEL_HOST_DIR to it, after: hf download {model['target.name']} --local-dir ELSEWHERE"
