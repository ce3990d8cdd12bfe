"""Known packs: by hash of config and index (made-up ones here), else by name."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from entrypoint.sizing.packs import look, rows
from model import Model, compare, load

CONFIG, INDEX = b'{"num_attention_heads": 64}', b'{"weight_map": {"a": "a.safetensors"}}'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def facts(*packs: dict[str, Any]) -> Model:
    return Model({**load().facts, "pack": [{"why": "because", "tell": "nobody", **pack} for pack in packs]})


GOOD = {"name": "owner/good", "verdict": "good", "files": [{"config": sha(CONFIG), "index": sha(INDEX)}]}
BAD = {"name": "owner/bad", "verdict": "bad", "files": [{"config": sha(CONFIG), "index": sha(b"other")}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models" / "glm"
    made.mkdir(parents=True)
    (made / "config.json").write_bytes(CONFIG)
    (made / "model.safetensors.index.json").write_bytes(INDEX)
    return made


def test_both_hashes_together_name_the_pack(folder: Path) -> None:
    (row,) = rows(facts(BAD, GOOD), folder)
    assert (row.level, "owner/good" in row.seen, "by hash" in row.seen) == ("info", True, True)
    (folder / "model.safetensors.index.json").write_bytes(b"other")
    (row,) = rows(facts(GOOD, BAD), folder)
    assert (row.level, "owner/bad" in row.seen) == ("WARN", True)
    assert "hf download nvidia/" in row.cure


def test_a_config_alone_names_nothing_when_the_index_is_another(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_bytes(b"a third")
    assert rows(facts(GOOD, BAD), folder) == ()
    (folder / "model.safetensors.index.json").unlink()
    assert rows(facts(GOOD, BAD), folder) == ()


def test_one_given_hash_is_enough_where_only_one_is_known(folder: Path) -> None:
    only = {**BAD, "files": [{"index": sha(INDEX)}]}
    assert [row.level for row in rows(facts(only), folder)] == ["WARN"]


def test_a_hash_speaks_louder_than_a_name(folder: Path) -> None:
    named = {"name": "owner/named", "verdict": "bad", "files": [], "tell": "glm"}
    (row,) = rows(facts(named, GOOD), folder)
    assert (row.level, "owner/good" in row.seen) == ("info", True)


def test_a_name_alone_is_said_to_be_that(folder: Path) -> None:
    (row,) = rows(facts({"name": "owner/named", "verdict": "bad", "files": [], "tell": "MODELS/GLM"}), folder)
    assert (row.level, "by name only" in row.seen) == ("WARN", True)


def test_a_good_name_with_unknown_files_is_told(folder: Path) -> None:
    (row,) = rows(facts({**GOOD, "tell": "models/glm", "files": [{"config": "0" * 64, "index": "1" * 64}]}), folder)
    assert row.level == "WARN"
    assert "no upload that is known" in row.seen
    assert "sha256sum config.json" in row.cure


def test_a_padded_folder_is_known_by_the_index_it_shares(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 66, "tp_pad_orig": {"tp": 3}}))
    (row,) = rows(facts(GOOD, BAD), folder)
    assert "owner/good" in row.seen


def test_the_packs_of_model_toml_are_told_by_name_in_every_place_they_may_lie(tmp_path: Path) -> None:
    for place, level in (
        ("LibertAIDAI/GLM-5.3-Flash-NVFP4", "WARN"),
        ("models--LibertAIDAI--GLM-5.3-Flash-NVFP4/snapshots/abc", "WARN"),
        ("models--nvidia--GLM-5.3-Flash-NVFP4/snapshots/abc", "info"),
        ("RedHatAI/GLM-5.3-Flash-NVFP4", "info"),
    ):
        (tmp_path / place).mkdir(parents=True)
        assert [row.level for row in rows(load(), tmp_path / place)] == [level]
    (tmp_path / "glm").mkdir()
    assert rows(load(), tmp_path / "glm") == ()


def test_every_hash_of_model_toml_is_one() -> None:
    for pack in load()["pack"]:
        assert pack["verdict"] in ("good", "bad")
        for files in pack["files"]:
            assert set(files) <= {"config", "index"}
            assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in files.values())


def test_what_is_no_folder_has_no_hash(tmp_path: Path) -> None:
    assert look(tmp_path / "nowhere").digests == {}


def test_an_index_is_compared_without_being_parsed(folder: Path) -> None:
    """Missing files and a wrong size are named; an index that ends half-way is told as unreadable."""
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {"total_size": 7}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})
    )
    (folder / "a.safetensors").touch()
    told = {row.name: row.seen for row in compare(load(), folder)}
    assert told["checkpoint files"] == "1 of 2 files missing, first b.safetensors"
    assert told["checkpoint bytes"] == "0.0 GiB"
    index.write_bytes(index.read_bytes()[:-20])
    assert "no readable" in {row.name: row.seen for row in compare(load(), folder)}["checkpoint index"]
