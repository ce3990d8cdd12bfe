"""Two boxes as containers of the image: they find each other on a LAN of their own, elect, and serve."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from image.inspection import inspect
from lab import cluster, watch
from lab.processes import wait_until
from lab.providers import docker
from lab.state import Lab
from launcher.paths import ROOT
from tests.fixtures.docker_engine import docker_engine


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    docker_engine()
    made, held = cluster.create("boxes", 2, {}, provider="docker")
    try:
        with held:
            cluster.start_all(made, held, [], print)
        watch.until_all_healthy(made, 600, print)
        yield made
    finally:
        cluster.down(made, grace_s=20)
    assert docker.leftovers(made) == []


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_both_boxes_answer_through_their_doors(lab: Lab) -> None:
    for box in lab.boxes:
        text, _ = watch.ask(lab, box, "Say something.", 120)
        assert text


@pytest.mark.full
def test_the_box_is_the_image(lab: Lab) -> None:
    done = docker.host(lab, lab.boxes[0]).run(["cat", "/opt/glm53/image.json"], deadline_s=20)
    assert '"spin-wait": "applied"' in done.out
    record = json.loads(done.out)
    for box in lab.boxes:
        page = watch.status(lab, box)
        assert page is not None
        assert page["image"]["id"] == inspect(docker.TAG)["id"]
        assert page["image"]["patched_tree"] == record["patched_tree"]
    assert docker.find(lab, lab.boxes[0], "kit")
    assert docker.find(lab, lab.boxes[0], "worker")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_killed_worker_is_mended(lab: Lab) -> None:
    command = [sys.executable, "-m", "launcher", "lab", "--name", "boxes", "kill", "box2", "--what", "worker"]
    before = {worker.pid for worker in docker.find(lab, lab.boxes[1], "worker")}
    subprocess.run(command, cwd=ROOT, check=True)

    def another() -> bool:
        now = {worker.pid for worker in docker.find(lab, lab.boxes[1], "worker")}
        return bool(now) and not now & before

    assert wait_until(another, 300, 1)
    watch.until_all_healthy(lab, 600, print)
    assert watch.ask(lab, lab.boxes[1], "Say something.", 120)[0]
