"""What a running box says of its image."""

import json
from pathlib import Path
from typing import Any

import pytest

from entrypoint.__main__ import STAGES
from entrypoint.board import Board
from entrypoint.boot import Boot
from image import identity
from image.identity import IMAGE_ID, compared, image_id, kit_version, read, report, write

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


# One image as `docker image inspect` shows it in Docker's two image stores. The classic one (20.10, overlay2) fills in
# every field; containerd's (28, overlayfs) leaves out what is empty, and its Id is the digest of the manifest.
SAID_IN_BOTH = {
    "RepoTags": ["glm53:local"],
    "Comment": "buildkit.dockerfile.v0",
    "Created": "2026-11-29T19:00:00.123456789Z",
    "Architecture": "arm64",
    "Os": "linux",
    "RootFS": {"Type": "layers", "Layers": ["sha256:1a", "sha256:2b"]},
}
WRITTEN = {
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1"],
    "Entrypoint": ["/opt/glm53/venv/bin/python", "-m", "entrypoint"],
    "WorkingDir": "/opt/glm53",
    "Labels": {"org.glm53.patched-tree": "0123456789abcdef"},
}
CLASSIC = {
    **SAID_IN_BOTH,
    "Id": "sha256:c0",
    "RepoDigests": [],
    "Parent": "",
    "Container": "",
    "ContainerConfig": {"Hostname": "", "Env": None, "Cmd": None, "Labels": None},
    "DockerVersion": "",
    "Author": "",
    "Config": {
        "Hostname": "",
        "User": "",
        "AttachStdin": False,
        "Tty": False,
        "Cmd": [],
        "Image": "",
        "Volumes": None,
        "OnBuild": None,
        **WRITTEN,
    },
    "Size": 3130000000,
    "VirtualSize": 3130000000,
    "GraphDriver": {"Data": {"UpperDir": "/var/lib/docker/overlay2/1a/diff"}, "Name": "overlay2"},
    "Metadata": {"LastTagTime": "2026-11-29T19:00:01Z"},
}
CONTAINERD = {
    **SAID_IN_BOTH,
    "Id": "sha256:d1",
    "RepoDigests": ["glm53@sha256:d1"],
    "Config": WRITTEN,
    "Size": 1410000000,
    "GraphDriver": {"Data": None, "Name": "overlayfs"},
    "Metadata": {"LastTagTime": "2026-11-29T20:00:01Z"},
    "Descriptor": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:d1", "size": 1234},
}


def test_one_image_has_one_id_in_both_image_stores() -> None:
    assert CLASSIC["Id"] != CONTAINERD["Id"]
    assert image_id(json.dumps([CLASSIC])) == image_id(json.dumps([CONTAINERD]))


@pytest.mark.parametrize(
    "change",
    [
        {"RootFS": {"Type": "layers", "Layers": ["sha256:1a", "sha256:3c"]}},
        {"RootFS": {"Type": "layers", "Layers": ["sha256:2b", "sha256:1a"]}},
        {"Config": {**WRITTEN, "Env": [*WRITTEN["Env"], "NCCL_DEBUG=INFO"]}},
        {"Config": {**WRITTEN, "Cmd": ["--debug"]}},
        {"Config": {**WRITTEN, "Labels": {"org.glm53.patched-tree": "fedcba9876543210"}}},
        {"Architecture": "amd64"},
    ],
    ids=lambda change: str(change)[:60],
)
@pytest.mark.parametrize("store", [CLASSIC, CONTAINERD], ids=["classic", "containerd"])
def test_another_image_has_another_id(store: dict[str, Any], change: dict[str, Any]) -> None:
    assert image_id(json.dumps([{**store, **change}])) != image_id(json.dumps([CLASSIC]))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '[{"Id": "sha256:c0"}]', '[{"RootFS": null, "Config": {}}]'])
def test_what_is_no_answer_about_an_image_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="not what docker image inspect prints"):
        image_id(text)
