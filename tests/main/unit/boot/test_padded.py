"""A checkpoint whose heads do not split over the ranks is refused before anything loads."""

import json
from pathlib import Path

from entrypoint.stages.ground import _divides


def folder(tmp_path: Path, config: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_64_heads_over_3_ranks_name_the_command(tmp_path: Path) -> None:
    (refusal,) = _divides(folder(tmp_path, {"text_config": {"num_attention_heads": 64}}), "3")
    assert "./glm53 pad" in refusal.cure
    assert "--tp 3" in refusal.cure


def test_64_heads_over_4_ranks_pass(tmp_path: Path) -> None:
    assert not list(_divides(folder(tmp_path, {"num_attention_heads": 64}), "4"))


def test_what_names_no_heads_is_left_to_others(tmp_path: Path) -> None:
    assert not list(_divides(folder(tmp_path, {}), "3"))
    assert not list(_divides(folder(tmp_path, []), "3"))
    assert not list(_divides(tmp_path / "nowhere", "3"))
