"""Contained reading: what is beneath a root, by descriptor; lines, pages, walks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoint.status.reading import Outside, Root, last_lines, lines_from, opened, walk


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.txt").write_text("outside")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inner.txt").symlink_to("a/b/file.txt")
    (root / "out").symlink_to(tmp_path / "other")
    os.mkfifo(root / "pipe")
    return root


def read(home: Path, path: str) -> str:
    with opened([Root(str(home))], path) as descriptor:
        return os.read(descriptor, 100).decode()


def test_files_beneath_the_root_by_name_and_by_path(home: Path) -> None:
    assert read(home, "a/b/file.txt") == "inside"
    assert read(home, f"{home}/a/./b//file.txt/") == "inside"


@pytest.mark.parametrize(
    "path",
    [
        *("link.txt", "inner.txt", "out/file.txt", "pipe", "a", "", ".", "../secret.txt", "a/../../secret.txt"),
        *("a/b/..", "/etc/passwd", "/proc/self/environ", "a\0b", "a/b/file.txt/x", "\ud800", "x" * 300, "x/" * 600),
    ],
)
def test_what_is_not_beneath_it_is_not_opened(home: Path, path: str) -> None:
    with pytest.raises(Outside):
        read(home, path)


def test_a_root_whose_name_begins_like_another(tmp_path: Path) -> None:
    for name in ("logs", "logs2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    with pytest.raises(Outside):
        read(tmp_path / "logs", f"{tmp_path}/logs2/f")


def test_a_walk_tells_regular_files_only_and_leaves_nothing_open(home: Path) -> None:
    before = descriptors()
    with opened([Root(str(home))], "", folder=True) as descriptor:
        found = [entry.path for entry, _ in walk(descriptor, "/l")]
    assert found == ["/l/a/b/file.txt"]
    assert descriptors() == before


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet="ab\r", max_size=30), max_size=40),
    st.integers(16, 80),
    st.integers(1, 10),
    st.booleans(),
)
def test_pages_of_lines_give_every_line_once(lines: list[str], window: int, most: int, ended: bool) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    descriptor = os.memfd_create("lines")
    try:
        os.write(descriptor, text.encode())
        raw = text.split("\n")
        if raw[-1] == "":
            raw.pop()
        expected = [line.rstrip("\r").rpartition("\r")[2] for line in raw]
        seen: list[str] = []
        offset = 0
        for _ in range(200):
            found = lines_from(descriptor, offset, window, most)
            seen += found.lines
            if found.end >= found.size:
                break
            assert found.end > offset
            offset = found.end
        assert len(seen) <= len(raw)
        if all(len(line) < window - 1 for line in raw):  # a longer one is passed over whole
            assert seen == expected
    finally:
        os.close(descriptor)


def test_the_last_lines_and_an_unfinished_one() -> None:
    descriptor = os.memfd_create("lines")
    try:
        os.write(descriptor, b"one\ntwo\nthr")
        assert last_lines(descriptor, 100, 2).lines == ("two", "thr")
        assert last_lines(descriptor, 100, 2).start == 4
        assert last_lines(descriptor, 6, 9).lines == ("thr",)
        found = lines_from(descriptor, 0, 100, 9, unfinished=False)
        assert (found.lines, found.end) == (("one", "two"), 8)
    finally:
        os.close(descriptor)
