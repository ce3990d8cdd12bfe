"""Generated code runs in a container that has nothing: no network, no writable disk, no privileges, little memory."""

from __future__ import annotations

import asyncio
import shutil
import uuid

IMAGE = "python:3.12-slim"
SECONDS = 15.0


def argv(image: str, name: str) -> list[str]:
    """The docker command that runs a Python program given on standard input."""
    return [
        "docker",
        "run",
        "--rm",
        "--interactive",
        "--name",
        name,
        "--pull",
        "never",
        "--network",
        "none",
        "--read-only",
        "--tmpfs",
        "/tmp:rw,noexec,nosuid,size=16m",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--user",
        "65534:65534",
        "--pids-limit",
        "64",
        "--memory",
        "512m",
        "--memory-swap",
        "512m",
        "--cpus",
        "1",
        "--env",
        "PYTHONDONTWRITEBYTECODE=1",
        "--workdir",
        "/tmp",
        "--entrypoint",
        "python3",
        image,
        "-I",
        "-",
    ]


async def missing(image: str) -> str | None:
    """Why no program can be run here, or None."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    process = await asyncio.create_subprocess_exec(
        "docker", "image", "inspect", image, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return None if await process.wait() == 0 else f"docker has no image {image} (docker pull {image}) or does not run"


async def passes(program: str, image: str, seconds: float = SECONDS) -> tuple[bool, str]:
    """Whether the program ends with status 0 in time, and the last line it wrote to stderr."""
    name = f"glm53-gate-{uuid.uuid4().hex[:12]}"
    process = await asyncio.create_subprocess_exec(
        *argv(image, name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            _, error = await process.communicate(program.encode())
    except BaseException as why:
        # the client's death does not end the container: end it by its own name
        remover = await asyncio.create_subprocess_exec(
            "docker", "rm", "--force", name, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        await remover.wait()
        if process.returncode is None:
            process.kill()
        await process.wait()
        if isinstance(why, TimeoutError):
            return False, f"not done after {seconds:g} s"
        raise
    lines = error.decode("utf-8", "replace").strip().splitlines()
    return process.returncode == 0, lines[-1][:200] if lines else ""
