"""The real image on the lab's base: built, verified inside, looked at from outside, and all cache the second time."""

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from experimental.overlays import read_all
from image.flashkda import artefact
from image.inspection import RECORD, docker, extract, inspect
from lab import base
from launcher.paths import ROOT
from launcher.verbs import patches as verb
from tests.fixtures.docker_engine import docker_engine

TAG = "glm53:test"
pytestmark = pytest.mark.timeout(900)  # a first build imports vLLM in a container, which a busy machine takes long for
SECRET = "planted-where-people-have-secrets"


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """A Docker engine: the one that answers, or one of our own. It is left running for the next suite."""
    docker_engine()
    base.ensure()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the tracked files as they stand now (somebody may be editing), with secrets where people have them."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for words in (("init", "-q"), ("add", ".")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = https://somebody:{SECRET}@example.org/glm53\n')
    for name in (
        ".env",
        "compose/.env",
        "compose/api-key",
        "compose/ext.yaml",
        "image/.env",
        "locks/.netrc",
        "core/.key",
    ):
        (folder / name).write_text(f"API_KEY={SECRET}\n")
    return folder


def build(source: Path, tag: str = TAG, *more: str) -> tuple[int, str]:
    """Exit status of image/build.sh, and what it said."""
    command = [str(source / "image" / "build.sh"), "--base", "lab", "--tag", tag, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def built(source: Path) -> str:
    """What image/build.sh said of a build that ended well."""
    status, said = build(source)
    assert status == 0, said
    assert "flashkda  skipped: the base has none" in said
    assert "left out, since git does not track it: compose/api-key, core/.key" in said
    return said


@pytest.fixture(scope="module")
def image(engine: None, source: Path) -> dict[str, Any]:
    built(source)
    return inspect(TAG)


def test_the_record_inside_names_base_patches_and_tree(image: dict[str, Any]) -> None:
    assert image["base"] == "lab"
    assert image["base_digest"].startswith("sha256:")
    assert image["versions"]["vllm"] == "0.32.0"
    assert image["patches"]["spin-wait"] == "applied"
    assert image["patches"]["draft-kv-groups"] == "fixed upstream"
    assert set(image["patches"].values()) <= {"applied", "fixed upstream", "unverifiable here"}
    assert len(image["patched_tree"]) == 16
    assert image["overlays"] == {overlay.name: [] for overlay in read_all()}


def test_the_labels_say_the_same(image: dict[str, Any]) -> None:
    labels = image["labels"]
    assert labels["org.glm53.patched-tree"] == image["patched_tree"]
    assert "spin-wait" in labels["org.glm53.patches.applied"].split()
    assert labels["org.opencontainers.image.base.digest"] == image["base_digest"]


def test_every_file_of_vllm_is_base_plus_patches(image: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert verb.run(["check", TAG]) == 0
    assert "0 differ from base + patches" in capsys.readouterr().out


def test_a_file_changed_by_somebody_is_named(image: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    site = image["site_packages"]
    spoilt = f"FROM {TAG}\nRUN echo '# mine' >> {site}/vllm/envs.py && touch {site}/vllm/mine.py\n"
    subprocess.run(["docker", "build", "-q", "-t", f"{TAG}-spoilt", "-"], input=spoilt, text=True, check=True)
    try:
        assert verb.run(["check", f"{TAG}-spoilt"]) == 1
    finally:
        docker("rmi", f"{TAG}-spoilt")
    out = capsys.readouterr().out
    assert "differs: vllm/envs.py" in out
    assert "not from the base: vllm/mine.py" in out


def test_the_kit_starts_from_its_own_environment(image: dict[str, Any]) -> None:
    """Inside: the kit's packages come from the kit, the base's vLLM and torch are what they were."""
    code = "import starlette, sys; print(starlette.__file__)"
    out = docker("run", "--rm", "--entrypoint", "/opt/glm53/venv/bin/python", TAG, "-c", code)
    assert out.startswith("/opt/glm53/venv/")
    code = "import importlib.metadata as m; print(m.version('vllm'), m.version('torch'))"
    assert docker("run", "--rm", "--entrypoint", "python3", TAG, "-c", code).split()[0] == "0.32.0+cpu"


def test_nothing_of_the_build_is_left(image: dict[str, Any]) -> None:
    gone = "/build /out /packed /wheels /mnt/* /root/.cache /opt/glm53/.git /opt/glm53/tests /opt/glm53/gate/repro"
    assert docker("run", "--rm", "--entrypoint", "sh", TAG, "-c", f"ls -d {gone} 2>/dev/null; true") == ""


def test_no_secret_of_the_clone_is_in_any_layer(image: dict[str, Any]) -> None:
    """Looked for in every byte of every layer and of the history, also of files that a later layer removed."""
    assert SECRET.encode() not in docker("history", "--no-trunc", TAG).encode()
    with subprocess.Popen(["docker", "save", TAG], stdout=subprocess.PIPE) as saving:
        assert saving.stdout
        seen, before, found = 0, b"", {"ENTRYPOINT": False, SECRET: False}
        while block := saving.stdout.read(1 << 24):
            seen += len(block)
            for word in found:
                found[word] |= word.encode() in before + block
            before = block[-64:]
    assert saving.returncode == 0
    assert seen > 1e9
    assert found == {"ENTRYPOINT": True, SECRET: False}  # the first: looking does find what is there


def test_the_second_build_is_all_cache(image: dict[str, Any], source: Path) -> None:
    said = built(source)
    log = Path(next(line for line in said.splitlines() if "log in" in line).split("log in ")[1]).read_text()
    steps = set(re.findall(r"^(#\d+) \[[^]]+\] (?:RUN|COPY) ", log, re.M))
    assert len(steps) > 10
    assert steps <= set(re.findall(r"^(#\d+) CACHED$", log, re.M))
    assert inspect(TAG)["id"] == image["id"]


def test_the_record_is_what_a_running_kit_reads(image: dict[str, Any], tmp_path: Path) -> None:
    extract(TAG, {RECORD: tmp_path / "image.json"})
    record = json.loads((tmp_path / "image.json").read_text())
    code = "import json; from image.identity import read; print(json.dumps(read()))"
    out = docker("run", "--rm", "--entrypoint", "/opt/glm53/venv/bin/python", TAG, "-c", code)
    assert json.loads(out) == record


@pytest.mark.full
@pytest.mark.parametrize("machine", [platform.machine(), "riscv64"])
def test_a_packed_flashkda_is_taken_over_or_refused(
    image: dict[str, Any], source: Path, tmp_path: Path, machine: str
) -> None:
    library = tmp_path / "_flashkda_C.abi3.so"
    library.write_bytes(b"not a library: only its place and its label are looked at")
    place = artefact.Place(machine, "3.11", "", "2.11.0")
    artefact.pack(tmp_path / "packed", [library], place, "sm_121a", "17a037d", "key")
    tag = f"{TAG}-flashkda"
    status, said = build(source, tag, "--flashkda", str(tmp_path / "packed"))
    if machine == "riscv64":
        assert status != 0
        assert "does not fit this base: built for riscv64, the base is" in said
        return
    try:
        assert status == 0, said
        found = inspect(tag)
        assert found["flashkda"] == found["labels"]["org.glm53.flashkda"] == "17a037d"
        assert found["patched_tree"] == image["patched_tree"]
        extract(tag, {f"{found['site_packages']}/vllm/{library.name}": tmp_path / "taken"})
        assert (tmp_path / "taken").read_bytes() == library.read_bytes()
    finally:
        docker("rmi", tag)
