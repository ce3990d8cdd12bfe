"""Bases, the steps of a build, what goes into the context, and a packed FlashKDA."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from core.refusal import Refusal
from core.registry import ROOMS as REGISTERED
from image import build, cuda_headers
from image.bases import choose, load, releases, repository
from image.flashkda import artefact
from launcher.paths import ROOT


def options(base: str = "v0.32.0", **more: object) -> build.Options:
    given = {"tag": "glm53:t", "arch": "arm64", "push": False, "flashkda": None, "log": Path("/l"), **more}
    return build.Options(load().table[base], **given)  # type: ignore[arg-type]


def test_the_default_is_the_newest_release_that_served() -> None:
    bases = load()
    tried = [base.vllm for base in bases.table.values() if base.proven == "served" and not base.local]
    assert bases.table[bases.default].vllm == max(tried)


def test_the_measured_base_is_there_by_its_full_tag() -> None:
    base = choose(load(), "nightly-ddd6fbca", force=False)
    assert base.image == "vllm/vllm-openai:nightly-ddd6fbca148a867aad1fcab7ec72f582b9977db4"
    assert base.flashkda == "rebuild"


def test_no_digest_is_written_by_hand() -> None:
    assert "sha256" not in (ROOT / "image" / "bases.toml").read_text()


def test_an_unknown_base_needs_force() -> None:
    with pytest.raises(Refusal, match=r"one of v0\.32\.0"):
        choose(load(), "v0.1.0", force=False)
    assert choose(load(), "somebody/vllm:x", force=True).image == "somebody/vllm:x"


def test_releases_to_try_are_no_nightlies() -> None:
    assert releases(load()).split(", ") == ["v0.32.0", "v0.31.0", "v0.33.0"]


def test_an_amd64_host_must_say_the_platform() -> None:
    base = load().table["v0.32.0"]
    with pytest.raises(Refusal, match="GB10 boxes are arm64"):
        build.architecture("", base, machine="x86_64")
    assert build.architecture("linux/arm64", base, machine="x86_64") == "arm64"
    assert build.architecture("", base, machine="aarch64") == "arm64"
    assert build.architecture("", load().table["lab"], machine="x86_64") == "amd64"
    with pytest.raises(Refusal, match="linux/arm64 or linux/amd64"):
        build.architecture("linux/riscv64", base)


def test_the_steps_in_order() -> None:
    names = [step.name for step in build.steps(options(push=True))]
    assert names == ["disk", "pull", "digest", "context", "flashkda", "wheels", "build", "label", "inspect", "push"]
    assert "pull" not in [step.name for step in build.steps(options("lab", arch="amd64"))]


def test_the_build_starts_from_the_digest_that_was_seen() -> None:
    (made,) = (step for step in build.steps(options(), "/c", "sha256:abc") if step.name == "build")
    assert "BASE=vllm/vllm-openai@sha256:abc" in made.argv
    assert made.argv[-1] == "/c"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai"),
        ("box.lan:5000/vllm:x", "box.lan:5000/vllm"),
        ("box.lan:5000/vllm", "box.lan:5000/vllm"),
        ("vllm@sha256:ab", "vllm"),
        ("vllm:x@sha256:ab", "vllm"),
    ],
)
def test_a_repository_keeps_its_port_and_loses_tag_and_digest(image: str, name: str) -> None:
    assert repository(image) == name


def test_the_digest_is_the_one_of_the_bases_own_repository_or_none() -> None:
    listed = '["mirror.example/vllm@sha256:beef", "vllm/vllm-openai@sha256:feed"]'
    assert build.digest_of(listed, "vllm/vllm-openai:v0.32.0") == "sha256:feed"
    assert build.digest_of('["debian@sha256:12"]', "docker.io/library/debian:13") == "sha256:12"
    for nothing in ("[]", "null", '["mirror.example/vllm@sha256:beef"]'):
        with pytest.raises(Refusal, match="no digest of vllm/vllm-openai"):
            build.digest_of(nothing, "vllm/vllm-openai:v0.32.0")


def test_wheels_are_for_the_image_and_by_hash() -> None:
    (step,) = (step for step in build.steps(options()) if step.name == "wheels")
    assert "--require-hashes" in step.argv
    assert "manylinux_2_28_aarch64" in step.argv
    assert step.argv[step.argv.index("--python-version") + 1] == "3.12"


def test_dry_run_prints_every_step_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no docker, no pip: a command would fail
    said: list[str] = []
    assert build.run(["--dry-run", "--platform", "linux/arm64", "--base", "v0.31.0"], said.append) == 0
    text = "\n".join(said)
    for name in ("disk", "pull", "digest", "context", "wheels", "build", "inspect"):
        assert f"\n{name}" in text
    assert "$ docker build --platform linux/arm64" in text


def test_what_becomes_of_flashkda_is_said() -> None:
    bases = load().table
    assert build.flashkda_note(bases["lab"], None).startswith("skipped: the base has none")
    assert "reported good" in build.flashkda_note(bases["v0.32.0"], None)
    assert "ROUNDS ITS STATE; --flashkda DIR" in build.flashkda_note(bases["nightly-ddd6fbca"], None)
    assert build.flashkda_note(bases["nightly-ddd6fbca"], Path("/p")).startswith("taken over from /p")


# An engine with space and a registry that knows one tag; what it is asked is written down.
ENGINE = """#!/bin/sh
echo "$*" >> "$ASKED"
case "$1 $*" in
  info*) echo / ;;
  pull*v0.32.0) ;;
  pull*) echo "manifest unknown" >&2; exit 1 ;;
  image*RepoDigests*) echo '["mirror.example/vllm@sha256:beef","vllm/vllm-openai@sha256:feed"]' ;;
  build*) echo "#1 the build log"; exit 3 ;;
  *) exit 9 ;;
esac
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The words of every docker command; wheels need no network here."""
    (tmp_path / "docker").write_text(ENGINE)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setattr(build, "wheels", lambda base, arch, context: ("true",))
    monkeypatch.setattr(build, "cache", lambda: tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("U", (), {"free": 500 * 2**30})())
    return tmp_path / "asked"


def test_a_pull_that_fails_names_the_releases_that_stay(asked: Path) -> None:
    with pytest.raises(Refusal, match=r"could not be pulled.* BASE= one of v0\.32\.0, v0\.31\.0, v0\.33\.0"):
        build.run(["--base", "nightly-ddd6fbca", "--platform", "linux/arm64"], lambda line: None)
    assert "build" not in asked.read_text()


def test_a_build_that_fails_shows_the_end_of_its_log_and_its_status(asked: Path) -> None:
    said: list[str] = []
    assert build.run(["--base", "v0.32.0", "--platform", "linux/arm64", "--push"], said.append) == 3
    assert "digest    sha256:feed" in said
    assert "BASE=vllm/vllm-openai@sha256:feed" in asked.read_text()
    assert "#1 the build log" in said[-1]
    assert "push" not in asked.read_text()


def test_labels_say_what_was_verified() -> None:
    record = {
        "kit": "0.1.0",
        "patched_tree": "ab",
        "flashkda": "17a037d",
        "patches": {"a": "applied", "b": "fixed upstream", "c": "applied"},
    }
    assert build.label_words(record) == {
        "org.opencontainers.image.version": "0.1.0",
        "org.glm53.patched-tree": "ab",
        "org.glm53.flashkda": "17a037d",
        "org.glm53.patches.applied": "a c",
        "org.glm53.patches.fixed-upstream": "b",
    }


def test_every_room_that_declares_knobs_goes_into_the_image() -> None:
    """Else the kit inside does not start: the registry imports all of them."""
    assert {room.split(".")[0] for room in REGISTERED} <= set(build.ROOMS)


def test_too_little_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_output", lambda argv: "/\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("U", (), {"free": 5 * 2**30})())
    with pytest.raises(Refusal, match=r"5 GiB free in /; expected 60 GiB"):
        build._disk(load().table["v0.32.0"])


KIT = ("image/Dockerfile", "locks/kit.txt", "core/a.py", "image/flashkda/artefact.py", "image/parsers/p.py", "glm53",
       "gate/repro/r.py", "gate/a.py", "tests/t.py")  # fmt: skip
PRIVATE = ("compose/.env", "core/__pycache__/a.pyc", ".git/config", ".env")


def make(source: Path, *names: str) -> None:
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_context_holds_the_kit_and_nothing_private(tmp_path: Path) -> None:
    """As from an archive: no clone there, so only names tell what is private."""
    make(tmp_path / "source", *KIT, *PRIVATE)
    assert build.copy_kit(tmp_path / "source", tmp_path / "context") == []
    found = files(tmp_path / "context")
    assert {
        "Dockerfile",
        "kit/core/a.py",
        "kit/locks/kit.txt",
        "kit/glm53",
        "patching/core/a.py",
        "kit/gate/a.py",
    } <= found
    assert not [name for name in found if ".env" in name or "tests" in name or ".git" in name or "pycache" in name]
    assert not [name for name in found if name.startswith(("patching/image/flashkda", "patching/image/parsers"))]
    assert not [name for name in found if "repro" in name]


def test_of_a_clone_only_what_git_tracks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make(source, *KIT)
    for words in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", "-C", str(source), *words], check=True)
    make(source, "compose/key.txt", "core/new.py", "image/mine/notes.md")
    (source / "core" / "link.py").symlink_to("/etc/passwd")
    strange = ["compose/key.txt", "core/link.py", "core/new.py", "image/mine/notes.md"]
    assert build.copy_kit(source, tmp_path / "context") == strange
    assert not [
        name for name in files(tmp_path / "context") if name.endswith(("key.txt", "new.py", "notes.md", "link.py"))
    ]
    assert "kit/core/a.py" in files(tmp_path / "context")


def test_what_the_image_holds_imports_nothing_that_it_lacks() -> None:
    """Of the kit's own rooms; the rest of the imports is tried by verify_base inside."""
    gone = ("tests", "bench", *(name.replace("/", ".") for name in build.LEFT_OUT))
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in build.ROOMS
        for path in (ROOT / room).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(build.LEFT_OUT)
        for line in path.read_text().splitlines()
        if re.match(rf"\s*(from|import) ({'|'.join(map(re.escape, gone))})\b", line)
    ]
    assert wrong == []


# --- FlashKDA ----------------------------------------------------------------------------------------------------

PLACE = artefact.Place("aarch64", "3.12", "13.0", "2.11.0")


def packed(folder: Path) -> artefact.Artefact:
    library = folder.parent / "_flashkda_C.abi3.so"
    library.write_bytes(b"ELF")
    return artefact.pack(folder, [library], PLACE, "sm_121a", "17a037d", "abc")


def test_a_packed_build_is_read_back(tmp_path: Path) -> None:
    made = packed(tmp_path / "p")
    assert artefact.load(tmp_path / "p") == made
    assert artefact.misfits(made, PLACE) == []


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (artefact.Place("x86_64", "3.12", "13.0", "2.11.0"), "built for aarch64"),
        (artefact.Place("aarch64", "3.11", "13.0", "2.11.0"), "CPython 3.12 or newer"),
        (artefact.Place("aarch64", "3.12", "12.9", "2.11.0"), "CUDA 13.0"),
        (artefact.Place("aarch64", "3.12", "13.0", "2.9.1"), "torch 2.11.0 or newer"),
    ],
)
def test_a_misfit_is_named(place: artefact.Place, reason: str, tmp_path: Path) -> None:
    (found,) = artefact.misfits(packed(tmp_path / "p"), place)
    assert reason in found


def test_a_newer_torch_and_python_are_fine(tmp_path: Path) -> None:
    newer = artefact.Place("aarch64", "3.13", "13.1", "2.13.0")
    assert artefact.misfits(packed(tmp_path / "p"), newer) == []


@pytest.mark.parametrize("damage", ["altered", "missing", "stray", "no list"])
def test_a_damaged_pack_is_refused(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    packed(folder)
    library = folder / "_flashkda_C.abi3.so"
    if damage == "altered":
        library.write_bytes(b"elf")
    elif damage == "missing":
        library.unlink()
    elif damage == "stray":
        (folder / "other.so").touch()
    else:
        (folder / artefact.NAME).write_text(json.dumps({"files": {}}))
    with pytest.raises(Refusal, match=r"--flashkda"):
        artefact.load(folder)


# --- CUDA headers ------------------------------------------------------------------------------------------------


def test_missing_headers_and_libraries_are_linked_and_nothing_is_replaced(tmp_path: Path) -> None:
    site, toolkit = tmp_path / "site", tmp_path / "cuda"
    source = site / "nvidia" / "cu13"
    for name in ("include/nvrtc.h", "include/cuda_runtime.h", "lib/libnvrtc.so.13"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("theirs")
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "include" / "cuda_runtime.h").write_text("own")
    lines = list(cuda_headers.link(site, toolkit))
    assert lines == [f"CUDA headers: 3 links made under {toolkit}", "CUDA headers: cublas_v2.h is still missing"]
    assert (toolkit / "include" / "nvrtc.h").resolve() == source / "include" / "nvrtc.h"
    assert (toolkit / "lib64" / "libnvrtc.so").resolve() == source / "lib" / "libnvrtc.so.13"
    assert (toolkit / "include" / "cuda_runtime.h").read_text() == "own"
    assert next(cuda_headers.link(site, toolkit)) == f"CUDA headers: 0 links made under {toolkit}"


def test_a_base_without_cuda(tmp_path: Path) -> None:
    (line,) = cuda_headers.link(tmp_path, tmp_path / "none")
    assert "nothing to link" in line
