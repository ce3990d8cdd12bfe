"""A checkpoint whose heads do not split over the ranks is refused before anything loads."""

import json
from pathlib import Path

from entrypoint.stages.ground import _divides

KNOB = "MODEL_HOST_DIR"


def folder(tmp_path: Path, config: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_64_heads_over_3_ranks_name_the_command(tmp_path: Path) -> None:
    (refusal,) = _divides(KNOB, folder(tmp_path, {"text_config": {"num_attention_heads": 64}}), "3")
    assert "./glm53 pad" in refusal.cure
    assert "--tp 3" in refusal.cure


def test_64_heads_over_4_ranks_pass(tmp_path: Path) -> None:
    assert not list(_divides(KNOB, folder(tmp_path, {"num_attention_heads": 64}), "4"))


def test_what_names_no_heads_is_left_to_others(tmp_path: Path) -> None:
    assert not list(_divides(KNOB, folder(tmp_path, {}), "3"))
    assert not list(_divides(KNOB, folder(tmp_path, []), "3"))
    assert not list(_divides(KNOB, tmp_path / "nowhere", "3"))


def test_the_drafters_heads_are_looked_at_too(tmp_path: Path) -> None:
    config = {"num_attention_heads": 32, "num_key_value_heads": 8}
    (refusal,) = _divides("DFLASH_HOST_DIR", folder(tmp_path, config), "6")
    assert "8 key-value heads" in refusal.seen
    assert "DFLASH_HOST_DIR" in refusal.cure
