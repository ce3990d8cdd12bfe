"""What a running box says of its image."""

from pathlib import Path

import pytest

from entrypoint.__main__ import STAGES
from entrypoint.board import Board
from entrypoint.boot import Boot
from image import identity
from image.identity import IMAGE_ID, compared, kit_version, read, report, write

RECORD = {"base": "v0.32.0", "base_digest": "sha256:b", "patched_tree": "0123456789abcdef", "patches": {}}


def test_outside_an_image_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert report({IMAGE_ID: "sha256:x"}, tmp_path / "image.json") == {}
    assert compared({}) == {}


def test_the_id_comes_from_outside_and_the_rest_from_the_record(tmp_path: Path) -> None:
    write(RECORD, tmp_path / "image.json")
    found = report({IMAGE_ID: "sha256:0123456789abcdef"}, tmp_path / "image.json")
    assert (found["id"], found["base"], found["patched_tree"]) == (
        "sha256:0123456789abcdef",
        "v0.32.0",
        RECORD["patched_tree"],
    )
    assert compared(found) == {
        "image": "0123456789ab",
        "patched tree": RECORD["patched_tree"],
        "FlashKDA": "the base's own",
    }
    assert "image" not in compared(report({}, tmp_path / "image.json"))


def test_a_damaged_record_is_told_and_does_not_keep_the_page_down(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text("{")
    assert "cannot be read" in report({}, tmp_path / "image.json")["kit"]


def test_status_json_reports_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(RECORD, tmp_path / "image.json")
    record = read(tmp_path / "image.json")
    monkeypatch.setattr(identity, "read", lambda file: record)
    boot = Boot({IMAGE_ID: "sha256:ab"})
    boot.board = Board(STAGES, boot)
    status = boot.board.status()
    assert (status["image"]["id"], status["image"]["patched_tree"]) == ("sha256:ab", RECORD["patched_tree"])
    assert status["service"]["version"] == kit_version()
    monkeypatch.setattr(identity, "read", lambda file: {})
    boot = Boot({})
    boot.board = Board(STAGES, boot)
    assert boot.board.status()["image"] is None
