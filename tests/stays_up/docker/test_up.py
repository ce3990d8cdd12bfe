"""`./glm53 up -d` on two boxes that are containers of the image: what runs is adopted, what changed is replaced.

The command, Compose, the image and its kits are real. The engine is lab/engine.py, and two things of a GB10's host are
told to the launcher, since no machine of the tests has them: Docker's NVIDIA runtime and an RDMA device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import cluster, model, watch
from lab.environment import environment
from lab.providers import docker
from lab.state import Box, Lab
from launcher.paths import ROOT
from tests.fixtures.docker_engine import docker_engine

ENGINE = '#!/bin/sh\nexec python3 /opt/glm53/lab/engine.py "$@"\n'
# A docker that has the NVIDIA runtime; everything else is the real one's answer.
RUNTIME = '#!/bin/sh\n[ "$1" = info ] && echo \'{{"nvidia": {{}}, "runc": {{}}}}\' && exit\nexec {docker} "$@"\n'
GLM53 = """
import sys
from functools import partial
from pathlib import Path
from launcher.__main__ import main
from launcher.verbs import compose
compose.look = partial(compose.look, root=Path(__file__).parent / "host")
sys.exit(main(sys.argv[1:]))
"""
# Of a lab box's environment: what the compose file's own mounts fix, and what is a default anyway.
NOT_IN_DOTENV = (
    "MODEL_DIR", "STATE_DIR", "LOG_DIR", "CACHE_ROOT", "GLM53_LAB_BOX", "TORCH_COMPILE_DISABLE", "ON_REFUSAL",
    "API_PORT", "STATUS_PORT", *docker.OWN,
)  # fmt: skip


@dataclass
class Boxes:
    """Two boxes: each has an .env and a compose file of its own, as two machines would."""

    lab: Lab
    folder: Path

    def file(self, box: Box, name: str) -> Path:
        return self.folder / f"{box.name}.{name}"

    def write(self, box: Box, **changes: str) -> None:
        """The box's .env, and what it lays over the compose files: names, addresses and volumes of the lab."""
        settings = environment(self.lab, box, ROOT, Path("/engine.sh"), Path("/models/target"))
        inside = {name: text for name, text in settings.items() if name not in NOT_IN_DOTENV}
        tiny = str(model.tiny())
        inside |= {
            "IMAGE": docker.TAG,
            "MODEL_HOST_DIR": tiny,
            "DFLASH_HOST_DIR": tiny,
            **changes,
        }
        self.file(box, "env").write_text("".join(f"{name}={text}\n" for name, text in inside.items()))
        over = docker.overlay(self.lab, box, {})
        service = over["services"]["glm53"]
        service["environment"] = {"TORCH_COMPILE_DISABLE": "1"}
        service["volumes"] = [f"{self.folder}/engine.sh:/engine.sh:ro"]
        self.file(box, "json").write_text(json.dumps(over))

    def run(self, box: Box, *words: str) -> str:
        """`./glm53 WORDS` on one box; what it printed."""
        files = ["-f", str(ROOT / "compose/lab.yaml"), "-f", str(self.file(box, "json"))]
        project = ["-p", docker.container(self.lab, box), "--env-file", str(self.file(box, "env"))]
        command = [sys.executable, str(self.folder / "glm53.py"), *project, *files, *words]
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        shell = {
            "PATH": path,
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "DOCKER_HOST": os.environ["DOCKER_HOST"],
        }
        done = subprocess.run(command, cwd=ROOT, env=shell, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def containers(self) -> list[str]:
        """Id and restart count of each box's container."""
        look = ["docker", "inspect", "--format", "{{.Id}} {{.RestartCount}}"]
        names = [docker.container(self.lab, box) for box in self.lab.boxes]
        return subprocess.run([*look, *names], check=True, capture_output=True, text=True).stdout.splitlines()

    def log(self, box: Box) -> str:
        """What the kit in the box's container has said."""
        look = ["docker", "logs", docker.container(self.lab, box)]
        return subprocess.run(look, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def status(self, box: Box) -> dict[str, Any]:
        return watch.status(self.lab, box) or {}

    def serving(self) -> str:
        """The id of the generation that both boxes serve, else ""."""
        seen = [self.status(box) for box in self.lab.boxes]
        ids = {page["generation"]["id"] for page in seen if page.get("healthy") and page["generation"]}
        return ids.pop() if len(ids) == 1 and all(page.get("healthy") for page in seen) else ""

    def until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "\n".join(self.log(box)[-5000:] for box in self.lab.boxes)
            time.sleep(0.3)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    docker_engine()
    folder = tmp_path_factory.mktemp("up")
    for name, text in {
        "engine.sh": ENGINE,
        "bin/docker": RUNTIME.format(docker=shutil.which("docker")),
        "glm53.py": GLM53,
        "host/dev/infiniband/uverbs0": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    lab, held = cluster.create("up", 2, {"SELF_TEST": "0", "ENGINE_PYTHON": "/engine.sh"}, provider="docker")
    made = Boxes(lab, folder)
    try:
        with held:
            docker.prepare(lab)
            yield made
    finally:
        for box in lab.boxes:
            if made.file(box, "json").exists():
                made.run(box, "down", "--volumes", "--timeout", "10")
        cluster.down(lab, grace_s=5)


def test_the_settings_of_a_box_lie_in_its_own_env(tmp_path: Path) -> None:
    lab = Lab("up", "up-7", 7, True, 8002, 8082, {}, (Box(1, "box1", "172.31.7.11", str(tmp_path)),), "docker")
    made = Boxes(lab, tmp_path)
    made.write(lab.boxes[0], MAX_NUM_SEQS="4")
    lines = made.file(lab.boxes[0], "env").read_text().splitlines()
    assert "MAX_NUM_SEQS=4" in lines
    assert not [line for line in lines if line.partition("=")[0] in NOT_IN_DOTENV]
    over = json.loads(made.file(lab.boxes[0], "json").read_text())["services"]["glm53"]
    assert set(over["environment"]) == {"TORCH_COMPILE_DISABLE"}  # a knob here would win over the box's .env


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_up_twice_adopts_and_up_with_a_changed_knob_replaces_both_boxes_with_one_message(boxes: Boxes) -> None:
    one, two = boxes.lab.boxes
    for box in (one, two):
        boxes.write(box, MAX_NUM_SEQS="4")
        assert "glm53: started." in boxes.run(box, "up", "-d")
    boxes.until(lambda: boxes.serving() != "")
    generation, containers = boxes.serving(), boxes.containers()

    for box in (one, two):
        assert "glm53: unchanged: the container that runs goes on." in boxes.run(box, "up", "-d")
    time.sleep(3)  # a box that was stopped would have left the generation by now
    assert boxes.containers() == containers
    assert boxes.serving() == generation
    assert not [box for box in (one, two) if "changed on all boxes" in boxes.log(box)]

    boxes.write(one, MAX_NUM_SEQS="5")
    assert "glm53: started." in boxes.run(one, "up", "-d")
    boxes.until(lambda: all("MAX_NUM_SEQS" in str(boxes.status(box).get("refusals")) for box in (one, two)))
    assert boxes.serving() == ""

    boxes.write(two, MAX_NUM_SEQS="5")
    boxes.run(two, "up", "-d")
    boxes.until(lambda: boxes.serving() not in ("", generation))
    assert not set(boxes.containers()) & set(containers)
    for box in (one, two):
        assert boxes.log(box).count("changed on all boxes since it last served: MAX_NUM_SEQS: 4 -> 5") == 1
