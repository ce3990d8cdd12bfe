"""The key's file, and knobs that only together make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.refusal import Refusal
from core.registry import registry
from core.settings import lenient, resolve
from entrypoint.serve import api_key, key_of
from entrypoint.stages import ground


def test_the_file_wins_over_the_knob_and_is_stripped(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    assert api_key(resolve(registry(), {"API_KEY_FILE": str(file), "API_KEY": "other"})) == "s3cret"
    assert api_key(resolve(registry(), {"API_KEY": "other"})) == "other"
    assert api_key(resolve(registry(), {})) is None


@pytest.mark.parametrize("content", [b"", b"\n \n", b"two\nlines", b"\xff\xfe", b"a\x00b", "schl\u00fcssel".encode()])
def test_a_file_without_a_key_does_not_open_the_api(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Refusal, match="API_KEY_FILE") as found:
        key_of(str(tmp_path / "key"))
    assert "two" not in str(found.value), "what is in the file is never shown"


@pytest.mark.parametrize("path", ["/nowhere/key", "/"])
def test_no_file_is_refused_at_the_start(path: str) -> None:
    assert [one.setting for one in ground._key_file(path)] == ["API_KEY_FILE"]


def test_one_port_for_page_and_door_is_named() -> None:
    (refusal,) = ground._ports(resolve(registry(), {"API_PORT": "8082"}))
    assert "8082, which is API_PORT too" in str(refusal)


@pytest.mark.parametrize(
    "text", ["::1", ":::::", "[::1]:8082", "host:", "host:x", "a b", "x" * 300, "host:\uff18", "h/", ":80"]
)
def test_peers_that_are_no_hosts(text: str) -> None:
    _, refusals = lenient(registry(), {"PEERS": f"10.0.0.9,{text}"})
    assert [one.setting for one in refusals] == ["PEERS"]


def test_peers_that_are() -> None:
    settings, refusals = lenient(registry(), {"PEERS": " 10.0.0.9, spark-2.local:8082,,"})
    assert not refusals
    assert settings["PEERS"] == ("10.0.0.9", "spark-2.local:8082")


@pytest.mark.parametrize("name", ["LOST_S", "JOIN_S"])
def test_deadlines_that_would_end_every_generation(name: str) -> None:
    assert [one.setting for one in lenient(registry(), {name: "0"})[1]] == [name]
