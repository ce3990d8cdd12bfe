"""Private environments: made once, never used half-made, and a Python without venv is told the apt line."""

import sys
import threading
from pathlib import Path

import pytest

from core.refusal import Refusal
from launcher import environments


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLM53_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder in place of a venv: what is tested is who makes it and when."""
    monkeypatch.setattr(environments, "_venv", Path.mkdir)


def test_a_python_without_venv_is_told_the_apt_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = cache / "python"
    broken.write_text(
        "#!/bin/sh\necho 'The virtual environment was not created: ensurepip is not available.'\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(Refusal) as refused:
        environments.ensure("x", b"", lambda folder: None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"sudo apt-get install python{version}-venv" in refused.value.cure


@pytest.mark.usefixtures("quick")
def test_a_half_made_environment_is_made_anew(cache: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("the network went away")

    with pytest.raises(RuntimeError):
        environments.ensure("x", b"1", fails)
    folder = environments.ensure("x", b"1", lambda folder: (folder / "whole").touch())
    assert (folder / "whole").exists()
    assert not (folder / "half").exists()


@pytest.mark.usefixtures("quick")
def test_it_is_made_once_even_by_two_at_the_same_time(cache: Path) -> None:
    made: list[Path] = []
    threads = [
        threading.Thread(target=lambda: environments.ensure("x", b"2", made.append)) for _ in range(2)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


@pytest.mark.usefixtures("quick")
def test_a_changed_lock_is_another_environment(cache: Path) -> None:
    first = environments.ensure("x", b"3", lambda folder: None)
    assert environments.ensure("x", b"3", lambda folder: None) == first
    assert environments.ensure("x", b"4", lambda folder: None) != first


def test_a_full_disk_is_told_before_anything_is_made(cache: Path) -> None:
    with pytest.raises(Refusal, match=r"disk: seen .* free for the cache; expected 1024TiB or more") as refused:
        environments.ensure("x", b"3", lambda folder: None, needs=2**50)
    assert "GLM53_CACHE" in refused.value.cure
    assert not [entry for entry in (cache / "envs").iterdir() if not entry.name.startswith(".")]
