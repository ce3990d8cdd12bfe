"""Generated code really runs in a container that has nothing: each program tries one thing that must not work."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.right import sandbox
from tests.fixtures.docker_engine import docker_engine

IMAGE = "glm53-gate-test:python"
LIBRARIES = "import pathlib; print(*{w for w in pathlib.Path('/proc/self/maps').read_text().split() if '.so' in w})"
LEFT_OUT = {"site-packages", "test", "idlelib", "tkinter", "ensurepip", "__pycache__"}


def python_tar(file: Path) -> None:
    """A root file system with this interpreter, its library and the shared objects these load, as /usr/bin/python3."""
    modules = "import ssl, hashlib, ctypes, socket, json, math, random, re, sqlite3;"
    found = subprocess.run(
        [sys.executable, "-I", "-c", modules + LIBRARIES], capture_output=True, text=True, check=True
    ).stdout.split()
    library = Path(os.__file__).parent
    loader = (
        Path("/lib64/ld-linux-x86-64.so.2") if os.uname().machine == "x86_64" else Path("/lib/ld-linux-aarch64.so.1")
    )
    with tarfile.open(file, "w") as tar:

        def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
            return None if set(info.name.split("/")) & LEFT_OUT else info

        tar.add(library, str(library).lstrip("/"), filter=keep)
        for path in {*map(Path, found), loader}:
            if library not in path.parents:
                tar.add(path.resolve(), str(path).lstrip("/"))
        tar.add(Path(sys.executable).resolve(), str(Path(sys.base_prefix) / "bin" / "python3").lstrip("/"))
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(Path(sys.base_prefix) / "bin" / "python3")
        tar.addfile(link, io.BytesIO())


@pytest.fixture(scope="module", autouse=True)
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    docker_engine()
    file = tmp_path_factory.mktemp("image") / "python.tar"
    python_tar(file)
    path = "ENV PATH=/usr/bin LD_LIBRARY_PATH=" + str(Path(sys.base_prefix) / "lib")
    subprocess.run(["docker", "import", "--change", path, str(file), IMAGE], check=True, capture_output=True)
    yield
    subprocess.run(["docker", "image", "rm", "--force", IMAGE], check=True, capture_output=True)


def containers() -> str:
    command = ["docker", "ps", "--all", "--quiet", "--filter", "name=glm53-gate-"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(program: str, seconds: float = 60.0) -> tuple[bool, str]:
    return asyncio.run(sandbox.passes(program, IMAGE, seconds))


def test_a_right_program_passes_and_a_wrong_one_says_why() -> None:
    assert run("assert sorted([3, 1, 2]) == [1, 2, 3]") == (True, "")
    assert run("assert 1 == 2, 'one is not two'") == (False, "AssertionError: one is not two")


SCRIPT = """
import os
open('/tmp/x', 'w').write('#!/usr/bin/python3')
os.chmod('/tmp/x', 0o755)
os.execv('/tmp/x', ['x'])
"""
FORKS = """
import os, time
for n in range(200):
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
"""
WANTS = {
    "the network": ("import socket; socket.create_connection(('192.0.2.1', 80), 3)", "unreachable"),
    "the disk": ("open('/usr/x', 'w')", "Read-only"),
    "a program of its own": (SCRIPT, "Permission denied"),
    "other users": ("import os; os.setuid(0)", "not permitted"),
    "many processes": (FORKS, "unavailable"),
    "much of the tmpfs": ("open('/tmp/x', 'wb').write(bytes(32 << 20))", "No space"),
}


@pytest.mark.parametrize("what", WANTS)
def test_a_program_that_wants(what: str) -> None:
    program, complaint = WANTS[what]
    passed, said = run(program)
    assert not passed
    assert complaint in said, said


def test_a_small_file_in_tmp_is_allowed() -> None:
    assert run("open('/tmp/x', 'w').write('a'); assert open('/tmp/x').read() == 'a'") == (True, "")


def test_a_program_that_wants_much_memory_is_killed() -> None:
    assert not run("x = bytearray(900 << 20); x[::4096] = b'1' * len(x[::4096])")[0]


def test_a_program_without_end_is_ended_and_no_container_stays() -> None:
    assert run("while True: pass", 4.0) == (False, "not done after 4 s")
    assert containers() == ""


def test_an_image_that_is_not_there_is_named_with_the_command() -> None:
    said = asyncio.run(sandbox.missing("glm53-no-such-image:none"))
    assert said is not None
    assert "docker pull glm53-no-such-image:none" in said
