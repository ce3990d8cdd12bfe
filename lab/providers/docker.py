"""Boxes as containers of the real image: the compose file people run, with compose/lab.yaml over it.

One compose project a box, one LAN and two fabric networks for all. The base is Debian with the CPU vLLM (lab/base.py).
Needs root and a Docker engine (.ci/docker-engine start).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.refusal import Refusal
from hosts.local import Local
from image.identity import IMAGE_ID, image_id
from lab import model, processes
from lab.processes import Process
from lab.providers.process import Kept, What, part
from lab.state import Box, Lab
from launcher.paths import ROOT

TAG = "glm53:lab"
NETWORKS = ("lan", "fabric0", "fabric1")
FABRIC_MTU = 9000  # as docs/host-setup.md sets it on every rail
OVERRIDE = "override.json"  # in a box's folder: laid over everything else, as the user's own -f is
FILES = ("compose/glm53.yaml", "compose/lab.yaml")
PAUSE_TRIES = 5  # runc may not be able to freeze a box whose processes are all at work ("unable to freeze")
# Of the process provider's environment: what a container has of its own, or the image sets.
OWN = ("PATH", "LANG", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONPYCACHEPREFIX")
LABEL = "glm53.lab"


def address(block: int, number: int) -> str:
    """Address of box `number` on the LAN of a block: 172.31.<block>.11, ..."""
    return f"172.31.{block}.{10 + number}"


def subnets(block: int) -> dict[str, str]:
    """Network -> subnet, none of them shared with another block's."""
    return {
        "lan": f"172.31.{block}.0/24",
        "fabric0": f"172.29.{block}.0/25",
        "fabric1": f"172.29.{block}.128/25",
    }


def container(lab: Lab, box: Box) -> str:
    """The container's name, also its project's and the front part of its volumes'."""
    return f"glm53-{lab.group}-{box.name}"


def network_name(lab: Lab, network: str) -> str:
    """What Docker calls one of NETWORKS of this lab."""
    return f"glm53-{lab.group}-{network}"


def overlay(lab: Lab, box: Box, environment: Mapping[str, str]) -> dict[str, Any]:
    """What this box adds to the compose files; JSON, which is YAML. Pure."""
    name = container(lab, box)
    inside = {key: value for key, value in environment.items() if key not in OWN}
    inside |= {
        "ENGINE_PYTHON": "python3",
        "MODEL_DIR": "/models/target",
        "STATE_DIR": "/state",
        "LOG_DIR": "/logs",
        "CACHE_ROOT": "/cache",
        "ON_REFUSAL": "stay",
    }
    inside |= lab.settings_of(box)
    return {
        "services": {
            "glm53": {
                "container_name": name,
                "hostname": name,
                "labels": {LABEL: lab.group},
                "environment": inside,
                "networks": {
                    network: {"ipv4_address": box.address, "priority": 1000} if network == "lan" else {}
                    for network in NETWORKS
                },
            }
        },
        "networks": {network: {"external": True, "name": network_name(lab, network)} for network in NETWORKS},
        "volumes": {volume: {"name": f"{name}-{volume}"} for volume in ("cache", "logs", "state")},
    }


def compose(lab: Lab, box: Box, *words: str) -> list[str]:
    """The docker compose command line for one box."""
    own = [file for file in ("compose.json", OVERRIDE) if file != OVERRIDE or (box.path / file).exists()]
    files = [*(str(ROOT / file) for file in FILES), *(str(box.path / file) for file in own)]
    return ["docker", "compose", "-p", container(lab, box), *(w for file in files for w in ("-f", file)), *words]


def check() -> None:
    """Refusal where no container can be made."""
    if shutil.which("docker") is None:
        cure = "As root on Debian: export DOCKER_HOST=$(.ci/docker-engine start). Or leave --provider out."
        raise Refusal("--provider", "docker, which is not installed", "a Docker engine with Compose v2", cure)


def prepare(lab: Lab) -> None:
    """The image from this clone, and the lab's networks. Raises Refusal."""
    from image import build
    from lab import base

    base.ensure()
    said: list[str] = []
    if build.run(["--base", "lab", "--tag", TAG], said.append):
        raise Refusal("image", said[-1].splitlines()[-1], "a build that ends well", "image/build.sh --base lab")
    for network, subnet in subnets(lab.block).items():
        size = () if network == "lan" else ("--opt", f"com.docker.network.driver.mtu={FABRIC_MTU}")
        label = f"{LABEL}={lab.group}"
        _docker("network", "create", "--subnet", subnet, *size, "--label", label, network_name(lab, network))


def start(lab: Lab, box: Box, argv: list[str], environment: Mapping[str, str], claim: int | None) -> None:
    """Start the box's container; the image's own command is `argv`, and networks hold the claim."""
    del argv, claim
    if kept(box).alive:
        raise Refusal("box", f"{box.name} is up", "a box that is down", f"./glm53 lab stop {box.name}")
    box.path.mkdir(parents=True, exist_ok=True)
    (box.path / "container").write_text(container(lab, box))
    (box.path / "kit.log").touch()
    file = box.path / "compose.json"
    file.touch(mode=0o600)
    image = {IMAGE_ID: image_id(_docker("image", "inspect", TAG))}
    file.write_text(json.dumps(overlay(lab, box, {**environment, **image}), indent=1) + "\n")
    _compose(lab, box, "up", "-d", "--no-build", "--pull", "never")


def kept(box: Box) -> Kept:
    """What Docker says of the container; its log is copied beside when it is down."""
    try:
        name = (box.path / "container").read_text()
    except FileNotFoundError:
        return Kept(False, 0, None, "never started", 0, None)
    look = ["docker", "inspect", "--format", "{{json .State}}|{{.RestartCount}}", name]
    done = subprocess.run(look, capture_output=True, text=True, check=False)
    if done.returncode:
        return Kept(False, 0, None, "stopped", 0, None)
    text, _, restarts = done.stdout.strip().rpartition("|")
    state = json.loads(text)
    alive = bool(state["Running"])
    if not alive:
        kit_log(box)
    word = "up" if alive else "refused" if state["ExitCode"] == 2 else "stopped"
    return Kept(alive, state["Pid"], state["Pid"] if alive else None, word, int(restarts), state["ExitCode"])


def kit_log(box: Box) -> Path:
    """Copy what the kit wrote, and /logs, into the box's folder; the kit's file."""
    if not (box.path / "container").exists():  # it has not been started yet
        return box.path / "kit.log"
    name = (box.path / "container").read_text()
    with (box.path / "kit.log").open("wb") as out:
        subprocess.run(["docker", "logs", name], stdout=out, stderr=subprocess.STDOUT, check=False)
    (box.path / "logs").mkdir(exist_ok=True)
    subprocess.run(["docker", "cp", f"{name}:/logs/.", str(box.path / "logs")], capture_output=True, check=False)
    return box.path / "kit.log"


def stop(lab: Lab, box: Box, grace_s: float) -> bool:
    """`docker compose stop`: TERM, wait, KILL; True when it ended by itself."""
    if not (box.path / "compose.json").exists():
        return True
    resume(lab, box)
    _compose(lab, box, "stop", "-t", str(int(grace_s)))
    return kept(box).status != 137


def kill_all(lab: Lab, box: Box) -> None:
    """A power cut: the container is killed, and Docker does not start it again by itself."""
    if kept(box).alive:
        _docker("kill", container(lab, box))


def inside(box: Box) -> list[Process]:
    """Everything in the container but its init."""
    now = kept(box)
    if not now.alive:
        return []
    space = processes.namespace_of(now.pid)
    return [process for process in processes.in_pid_namespace(space) if process.pid != now.pid]


def find(lab: Lab, box: Box, what: What) -> list[Process]:
    """The kit; the engine; vLLM's workers; or all of the box."""
    del lab
    family = sorted(inside(box), key=lambda process: process.born)
    return family if what == "box" else part(family, what)


def pause(lab: Lab, box: Box) -> int:
    """Freeze the container; how many processes were in it."""
    family = inside(box)
    for left in reversed(range(PAUSE_TRIES)):
        try:
            _docker("pause", container(lab, box))
            break
        except Refusal:
            if not left:
                raise
    return len(family)


def resume(lab: Lab, box: Box) -> int:
    """Thaw it; how many processes go on (0 when it was not frozen)."""
    done = subprocess.run(["docker", "unpause", container(lab, box)], capture_output=True, check=False)
    return len(inside(box)) if done.returncode == 0 else 0


def host(lab: Lab, box: Box) -> Local:
    """Where commands run as if in the box."""
    return Local(box.name, ("docker", "exec", container(lab, box)))


def remove(lab: Lab, box: Box) -> None:
    """Take the box's container and volumes down; what it logged stays in its folder."""
    if (box.path / "compose.json").exists():
        resume(lab, box)
        kit_log(box)
        _compose(lab, box, "down", "--volumes", "--timeout", "5")


def leftovers(lab: Lab) -> list[str]:
    """Take containers, volumes and networks down; what is still there, one line each."""
    for box in lab.boxes:
        remove(lab, box)
    for network in NETWORKS:
        subprocess.run(["docker", "network", "rm", network_name(lab, network)], capture_output=True, check=False)
    found = []
    for kind, words in {
        "container": ("ps", "-a", "--format", "{{.Names}}"),
        "network": ("network", "ls", "--format", "{{.Name}}"),
        "volume": ("volume", "ls", "--format", "{{.Name}}"),
    }.items():
        names = _docker(*words, "--filter", f"name=glm53-{lab.group}-").split()
        found += [f"{kind} {name}" for name in names]
    return found


def namespaces_permitted() -> bool:
    """A container is always a namespace of its own."""
    return True


def _compose(lab: Lab, box: Box, *words: str) -> None:
    tiny = str(model.tiny())
    given = {"IMAGE": TAG, "MODEL_HOST_DIR": tiny, "DFLASH_HOST_DIR": tiny}
    kept_names = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG")
    environment = {name: os.environ[name] for name in kept_names if name in os.environ} | given
    done = subprocess.run(
        compose(lab, box, *words), env=environment, cwd=box.path, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Refusal(
            "docker compose", f"{box.name}: {last}", "a container that starts", f"docker logs {container(lab, box)}"
        )


def _docker(*words: str) -> str:
    done = subprocess.run(("docker", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise Refusal("docker", last, f"docker {words[0]} to work", "export DOCKER_HOST=$(.ci/docker-engine start)")
    return done.stdout
