"""One image on all boxes: over plain ssh, checked by id at the end."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.refusal import Refusal
from image import identity

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


@dataclass(frozen=True)
class Sent:
    """How it went with one host: `state` is `there`, `sent` or `failed`."""

    host: str
    state: str
    detail: str = ""


def save_command(reference: str) -> tuple[str, ...]:
    """Writes the image to standard output."""
    return ("docker", "save", reference)


def load_command(host: str) -> tuple[str, ...]:
    """Reads an image from standard input, over there. gzip would cost more than a fabric's time."""
    return (*SSH, host, "docker load -q")


def inspect_command(reference: str, host: str | None = None) -> tuple[str, ...]:
    """Asks about the image, here or over there."""
    words = ("docker", "image", "inspect", reference)
    return words if host is None else (*SSH, host, shlex.join(words))


def image_id(reference: str, host: str | None = None) -> tuple[str, str]:
    """The id (image/identity.py), or an empty one and what was said instead."""
    done = subprocess.run(inspect_command(reference, host), capture_output=True, text=True, check=False)
    if done.returncode:
        return "", (done.stderr.strip().splitlines() or [""])[-1]
    try:
        return identity.image_id(done.stdout), ""
    except ValueError as error:
        return "", str(error)


def send(reference: str, hosts: Sequence[str], say: Callable[[str], None]) -> list[Sent]:
    """Copy the image to each host that has another id, one host after another (they share this host's uplink).

    Raises Refusal for a name that ssh would read as an option.
    """
    for host in hosts:
        if not host or host.startswith("-"):
            raise Refusal("HOST", repr(host), "a host name, or user@host", "./glm53 image send box2")
    mine, complaint = image_id(reference)
    if not mine:
        return [Sent(host, "failed", f"no such image here: {complaint}") for host in hosts]
    results = []
    for host in hosts:
        theirs, _ = image_id(reference, host)
        if theirs == mine:
            results.append(Sent(host, "there", mine))
        else:
            say(f"{host}: sending {reference}")
            results.append(_send(reference, host, mine))
        say(f"{host}: {results[-1].state} {results[-1].detail}")
    return results


def _send(reference: str, host: str, mine: str) -> Sent:
    with subprocess.Popen(save_command(reference), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as saving:
        loaded = subprocess.run(load_command(host), stdin=saving.stdout, capture_output=True, text=True, check=False)
        if saving.stdout:
            saving.stdout.close()
        said = saving.stderr.read().decode(errors="replace") if saving.stderr else ""
    # A receiver that ends early also breaks the sender's pipe: what the receiver said is the cause.
    if loaded.returncode:
        return Sent(host, "failed", (loaded.stderr.strip().splitlines() or ["docker load failed"])[-1])
    if saving.returncode:
        return Sent(host, "failed", f"docker save: {said.strip() or saving.returncode}")
    theirs, complaint = image_id(reference, host)
    if theirs != mine:
        return Sent(host, "failed", f"has {theirs or complaint} after loading, here it is {mine}")
    return Sent(host, "sent", mine)
