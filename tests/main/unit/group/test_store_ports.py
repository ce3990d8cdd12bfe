"""What is kept across restarts, and ports that are really free."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from core.refusal import Refusal
from group.ports import find_ports, parse_range
from group.store import Store


def test_the_epoch_survives_a_restart_and_never_goes_back(tmp_path: Path) -> None:
    Store(tmp_path).keep_epoch(7)
    store = Store(tmp_path)
    store.keep_epoch(3)
    assert store.epoch == Store(tmp_path).epoch == 7


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '{"epoch": "x"}', '{"epoch": -4}', "\x00", "[" * 100_000, '{"epoch": 999999999999999999999}'],
)
def test_an_unreadable_file_is_a_lost_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "group.json").write_text(text)
    assert Store(tmp_path).epoch == 0


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(Refusal, match="STATE_DIR"):
        Store(Path("/proc/glm53"))


def test_every_generation_has_its_own_pair_of_ports() -> None:
    low, high = parse_range("28200-28207")
    pairs = [find_ports(low, high, counter) for counter in range(5)]
    assert pairs == [(28200, 28201), (28202, 28203), (28204, 28205), (28206, 28207), (28200, 28201)]


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 28203))
        holder.listen()
        assert find_ports(28200, 28207, 1) == (28204, 28205)
        assert find_ports(28202, 28203, 0) is None
