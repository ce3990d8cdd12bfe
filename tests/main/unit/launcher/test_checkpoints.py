"""A checkpoint folder is whole or refused with the download line; a Hugging Face cache is mounted as a whole."""

import json
import shutil
from pathlib import Path

import pytest

from core.refusal import Refusal
from launcher.checkpoints import DRAFTER, MODEL, locate

SHARDS = ("model-1.safetensors", "model-2.safetensors")


def write(folder: Path, *, index: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for name in SHARDS:
        (folder / name).write_bytes(b"weights")
    if index:
        weights = {f"layer.{number}": name for number, name in enumerate(SHARDS)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return folder


def write_cache(root: Path, revision: str = "abc", *, main: bool = True) -> Path:
    """A cache as huggingface_hub lays it out: snapshots/<revision>/<name> -> ../../blobs/<hash>."""
    cache = root / "models--nvidia--GLM"
    real = write(root / "real")
    snapshot = cache / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for file in real.iterdir():
        shutil.copy(file, cache / "blobs" / f"hash-{file.name}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"hash-{file.name}")
    if main:
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text(revision)
    return cache


def refusal(folder: Path) -> Refusal:
    with pytest.raises(Refusal) as refused:
        locate(folder, MODEL)
    return refused.value


def test_a_plain_folder_is_mounted_as_it_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "glm")
    mounted = locate(folder, MODEL)
    assert (mounted.host, mounted.seen(MODEL)) == (folder, "/models/target")
    assert locate(write(tmp_path / "draft", index=False), DRAFTER).inside == ""


def test_a_missing_model_prints_the_download_line_size_and_path(tmp_path: Path) -> None:
    text = str(refusal(tmp_path / "nowhere"))
    assert f"hf download nvidia/GLM-5.3-Flash-NVFP4 --local-dir {tmp_path}/nowhere" in text
    assert "181.3 GiB" in text
    assert "MODEL_HOST_DIR" in text


def test_a_missing_drafter_names_its_licence_and_the_knob_that_leaves_it_out(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        locate(tmp_path / "nowhere", DRAFTER)
    for words in ("CC BY-NC-ND 4.0", "non-commercial", "SPEC_METHOD=mtp", "2.2 GiB"):
        assert words in str(refused.value)


def test_a_download_that_stopped_half_way_is_counted(tmp_path: Path) -> None:
    folder = write(tmp_path / "glm")
    (folder / SHARDS[1]).write_bytes(b"")
    assert "1 of 2 weight files missing (model-2.safetensors" in refusal(folder).seen


@pytest.mark.parametrize("lost", ["config.json", *SHARDS])
def test_a_folder_that_lacks_a_file_is_refused(tmp_path: Path, lost: str) -> None:
    folder = write(tmp_path / "glm")
    (folder / lost).unlink()
    assert lost in refusal(folder).seen


def test_a_garbled_index_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "glm")
    (folder / "model.safetensors.index.json").write_text("[1]")
    assert "no weight index" in refusal(folder).seen


@pytest.mark.parametrize("given", ["", "snapshots/abc"])
def test_a_hugging_face_cache_is_mounted_whole_and_the_snapshot_named(tmp_path: Path, given: str) -> None:
    cache = write_cache(tmp_path)
    mounted = locate(cache / given, MODEL)
    assert mounted.host == cache
    assert mounted.seen(MODEL) == "/models/target/snapshots/abc"
    assert (mounted.host / mounted.inside / SHARDS[0]).read_bytes() == b"weights"


def test_a_folder_of_absolute_links_into_a_cache_leads_to_that_cache(tmp_path: Path) -> None:
    cache = write_cache(tmp_path)
    folder = tmp_path / "linked"
    folder.mkdir()
    for file in (cache / "snapshots" / "abc").iterdir():
        (folder / file.name).symlink_to(file.resolve())
    assert locate(folder, MODEL).host == cache


def test_a_link_to_a_snapshot_is_followed(tmp_path: Path) -> None:
    cache = write_cache(tmp_path)
    (tmp_path / "link").symlink_to(cache / "snapshots" / "abc")
    assert locate(tmp_path / "link", MODEL).host == cache


def test_two_snapshots_without_a_main_are_not_guessed(tmp_path: Path) -> None:
    cache = write_cache(tmp_path, main=False)
    (cache / "snapshots" / "def").mkdir()
    assert "2 snapshots" in refusal(cache).seen


def test_links_to_somewhere_else_are_refused(tmp_path: Path) -> None:
    real, folder = write(tmp_path / "real"), tmp_path / "linked"
    folder.mkdir()
    for file in real.iterdir():
        (folder / file.name).symlink_to(file)
    assert "cp -rL" in refusal(folder).cure


def test_dead_links_are_told_as_such(tmp_path: Path) -> None:
    cache = write_cache(tmp_path)
    shutil.rmtree(cache / "blobs")
    assert "dead link" in refusal(cache / "snapshots" / "abc").seen
