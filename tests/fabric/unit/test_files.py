"""Model files: whole by their own headers, right by the hashes their download recorded, and owned by the kit."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from launcher.verbs import doctor
from preflight.checks import Wanted
from preflight.checks.deep import deep
from preflight.facts import files
from preflight.facts.folders import folders_of


def shard(path: Path, size: int = 64) -> bytes:
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(size)
    path.write_bytes(data)
    return data


def test_a_shard_shorter_than_its_header_says_is_cut_short(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        data = shard(tmp_path / f"{name}.safetensors")
    (tmp_path / "b.safetensors").write_bytes(data[:-1])
    (tmp_path / "c.safetensors").write_bytes(data[:20])
    (tmp_path / "d.safetensors").write_bytes(os.urandom(99))
    (tmp_path / "e.safetensors").write_bytes(b"")
    assert files.cut_short(tmp_path) == ["b.safetensors", "c.safetensors"]
    assert files.cut_short(tmp_path / "nowhere") == []


def test_hashes_are_compared_with_what_the_download_wrote_down(tmp_path: Path) -> None:
    notes = tmp_path / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    data = shard(tmp_path / "a.safetensors")
    (notes / "a.safetensors.metadata").write_text(f"commit\n{hashlib.sha256(data).hexdigest()}\n1.5\n")
    (tmp_path / "config.json").write_text("{}")
    git = hashlib.sha1(b"blob 2\0{}", usedforsecurity=False).hexdigest()
    (notes / "config.json.metadata").write_text(f"commit\n{git}\n1.5\n")
    (tmp_path / "notes.txt").write_text("mine")
    wanted = Wanted(model=str(tmp_path))
    said: list[str] = []
    (row,) = deep(wanted, said.append)
    assert row.level == "info"
    assert "3 files" in row.seen
    assert "1 without a recorded hash" in row.seen
    assert said[-1].startswith("notes.txt (100 %")
    (tmp_path / "a.safetensors").write_bytes(data[:-1] + b"x")
    (tmp_path / "config.json").write_text("[]")
    rows = list(deep(wanted))
    assert [row.level for row in rows] == ["FAIL", "FAIL", "info"]
    assert "a.safetensors" in rows[0].seen
    assert "config.json" in rows[1].seen
    assert rows[0].link == "docs/troubleshooting.md#model-files"


def test_a_blob_of_the_cache_is_named_by_its_hash(tmp_path: Path) -> None:
    data = b"weights"
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    (snapshot / "a.safetensors").symlink_to(blobs / name)
    assert [(one.expected, one.matches) for one in files.hashes(snapshot)] == [(name, True)]
    (blobs / name).write_bytes(b"other")
    assert [one.matches for one in files.hashes(snapshot)] == [False]


def test_two_boxes_with_the_same_files_say_the_same_number(tmp_path: Path) -> None:
    for box in ("one", "two"):
        (tmp_path / box).mkdir()
        shard(tmp_path / box / "a.safetensors")
    one, two = (files.together(files.hashes(tmp_path / box)) for box in ("one", "two"))
    assert one == two
    (tmp_path / "two/a.safetensors").rename(tmp_path / "two/b.safetensors")
    assert files.together(files.hashes(tmp_path / "two")) != one


def test_doctor_deep_fails_on_a_changed_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    (model / ".cache/huggingface/download").mkdir(parents=True)
    shard(model / "model.safetensors")
    (model / ".cache/huggingface/download/model.safetensors.metadata").write_text(f"c\n{'0' * 64}\n1\n")
    for name, value in (("MODEL_HOST_DIR", model), ("MODEL_DIR", model), ("ENGINE_PROFILE", "lab-cpu")):
        monkeypatch.setenv(name, str(value))
    assert doctor.run(["--deep", "--json"]) == 2


def test_what_the_kit_cannot_write_in_its_cache_is_listed(tmp_path: Path) -> None:
    (tmp_path / "vllm/key").mkdir(parents=True)
    (tmp_path / "triton").mkdir()
    (found,) = folders_of(["/", "", str(tmp_path / "nowhere"), str(tmp_path), str(tmp_path)])
    assert (found.owner, found.user, found.locked) == (os.geteuid(), os.geteuid(), ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; another user is locked out by itself")
def test_another_user_s_cache_is_locked(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    for one in (tmp_path, *tmp_path.parents[:2]):
        one.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        (found,) = folders_of([str(tmp_path)])
        os._exit(0 if found.locked == (".", "vllm") and found.user == 65534 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
