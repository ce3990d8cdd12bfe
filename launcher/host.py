"""What ./glm53 needs of the host before it starts a container: asked once, judged purely."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.refusal import Refusal
from image.identity import image_id

# The daemon may be slow on a loaded box, but never this slow; past it the answer counts as none.
ANSWER_S = 20.0
INSTALL_DOCKER = "sudo apt-get install docker.io  (or Docker's own packages), then: sudo usermod -aG docker $USER"
INSTALL_COMPOSE = "sudo apt-get install docker-compose-v2  (Docker's own packages: docker-compose-plugin)"


@dataclass(frozen=True)
class Container:
    """A container of the name glm53: the Compose project it belongs to ("" for none) and where that was started."""

    project: str
    folder: str


@dataclass(frozen=True)
class Host:
    """What was seen. None is "no answer"; `daemon` is the error line of docker, empty when it answers.

    image  its id; "" where this box has none of that name (yet)
    """

    docker: str | None
    compose: str | None
    daemon: str
    runtimes: tuple[str, ...]
    infiniband: bool
    container: Container | None
    image: str


def look_at_tools(environ: Mapping[str, str]) -> Host:
    """Only what judge_tools needs: `down` or `logs` must not ask the daemon four questions first."""
    docker = shutil.which("docker", path=environ.get("PATH"))
    if docker is None:
        return Host(None, None, "", (), False, None, "")
    status, out, _ = _ask(environ, "compose", "version", "--short")
    return Host(docker, out.strip() if status == 0 else None, "", (), False, None, "")


def look(image: str, environ: Mapping[str, str], root: Path = Path("/")) -> Host:
    """Ask docker and the file system; takes as long as docker does, at most ANSWER_S a question."""
    tools = look_at_tools(environ)
    docker, compose, infiniband = tools.docker, tools.compose, any((root / "dev/infiniband").glob("uverbs*"))
    if docker is None:
        return tools
    status, out, error = _ask(environ, "info", "--format", "{{json .Runtimes}}")
    if status != 0:
        return Host(docker, compose, _first(error) or f"exit {status}", (), infiniband, None, "")
    runtimes = tuple(json.loads(out)) if out.strip().startswith("{") else ()
    status, found, _ = _ask(environ, "image", "inspect", image)
    return Host(docker, compose, "", runtimes, infiniband, _container(environ), image_id(found) if status == 0 else "")


def pull(image: str, environ: Mapping[str, str]) -> str:
    """Fetch the image, with docker's own progress; its id. Raises Refusal when the registry does not give it."""
    done = subprocess.run(["docker", "pull", image], env=dict(environ), check=False)
    status, found, error = _ask(environ, "image", "inspect", image) if done.returncode == 0 else (1, "", "")
    if status != 0:
        cure = "Look at docker's own words above: log in to the registry, or correct IMAGE in compose/.env."
        raise Refusal("IMAGE", f"docker pull {image} failed{error and ': ' + _first(error)}", "an image", cure)
    return image_id(found)


def running(compose: Sequence[str], environ: Mapping[str, str]) -> str:
    """Ids of the containers of this Compose command line that run; "" for none, or when docker does not tell."""
    status, found, _ = _ask(environ, *compose[1:], "ps", "-q")
    return found.strip() if status == 0 else ""


def judge_tools(host: Host) -> list[Refusal]:
    """What every passed-on command needs: docker and Compose v2."""
    if host.docker is None:
        return [Refusal("Docker", "no docker on PATH", "Docker Engine", INSTALL_DOCKER)]
    if host.compose is None or not re.match(r"v?[2-9]", host.compose):
        return [Refusal("Docker Compose", host.compose or "no `docker compose`", "version 2", INSTALL_COMPOSE)]
    return []


def judge(host: Host, image: str) -> list[Refusal]:
    """Everything that keeps a container from starting here, worst first."""
    found = judge_tools(host)
    if found:
        return found
    if host.daemon:
        cure = "sudo systemctl start docker  (permission denied: sudo usermod -aG docker $USER, and log in again)"
        return [Refusal("Docker", host.daemon, "a Docker Engine that answers", cure)]
    if "nvidia" not in host.runtimes:
        seen = "runtimes " + ", ".join(sorted(host.runtimes)) if host.runtimes else "no runtimes"
        cure = (
            "sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker"
            " && sudo systemctl restart docker"
        )
        found.append(Refusal("NVIDIA runtime", seen, "the runtime nvidia in Docker", cure))
    if not host.infiniband:
        cure = "Cable the ConnectX-7 and load its driver: sudo modprobe mlx5_ib  (then: ls /dev/infiniband)"
        found.append(Refusal("/dev/infiniband", "no uverbs device in it", "RDMA devices on this box", cure))
    if host.container and host.container.project != "glm53":
        found.append(_foreign(host.container))
    if not host.image and "/" not in image:
        cure = "image/build.sh builds it here; or: docker load, or IMAGE=registry/name:tag in compose/.env"
        found.append(Refusal("IMAGE", f"no image {image} on this box", "an image", cure))
    return found


def _foreign(container: Container) -> Refusal:
    if container.project:
        where = f" in {container.folder}" if container.folder else ""
        cure = f"Take it down with its own compose file{where}, or: docker rm -f glm53"
        return Refusal("container glm53", f"one of Compose project {container.project}", "none, or ours", cure)
    return Refusal("container glm53", "one that Compose did not make", "none, or ours", "docker rm -f glm53")


def _container(environ: Mapping[str, str]) -> Container | None:
    labels = '{{.Label "com.docker.compose.project"}}\t{{.Label "com.docker.compose.project.working_dir"}}'
    status, out, _ = _ask(environ, "ps", "--all", "--filter", "name=^/glm53$", "--format", labels)
    lines = out.splitlines()
    if status != 0 or not lines:
        return None
    project, _, folder = lines[0].partition("\t")
    return Container(project.strip(), folder.strip())


def _ask(environ: Mapping[str, str], *arguments: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer to docker {arguments[0]} in {ANSWER_S:.0f} s"
    return done.returncode, done.stdout, done.stderr


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
