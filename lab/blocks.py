"""A block of loopback addresses for each lab, so that two labs on one machine never meet.

The claim is a bound socket in the kernel's abstract namespace: nobody can take it twice, it needs no file,
and it is gone with the last process that holds it. Every keeper of the lab inherits it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from core.refusal import Refusal

FIRST_BOX = 11
BLOCKS: Sequence[int] = range(0, 255)


def address(block: int, number: int) -> str:
    """Loopback address of box `number` (1, 2, ...) of a block: 127.0.0.11, 127.0.0.12, ..."""
    return f"127.0.{block}.{FIRST_BOX + number - 1}"


def claim(boxes: int, ports: tuple[int, ...]) -> tuple[int, socket.socket]:
    """The first free block, and the socket that holds it; Refusal when all are taken."""
    for port in ports:
        if not _free("0.0.0.0", port):
            _held_everywhere(port)
    for block in BLOCKS:
        held = hold(block)
        if held is None:
            continue
        if all(_free(address(block, number), port) for number in range(1, boxes + 1) for port in ports):
            return block, held
        held.close()
    raise Refusal("lab", "every block of 127.0.0.0/16 taken", "a free one", "./glm53 lab down in other clones")


def _held_everywhere(port: int) -> None:
    """Refusal when whoever listens on `port` does so on every address: then no block would do."""
    last = address(BLOCKS[-1], 200)
    if not _free(last, port):
        cure = (
            f"See who has it (ss -ltnp 'sport = :{port}'), or ./glm53 lab up --set API_PORT=... --set STATUS_PORT=..."
        )
        raise Refusal(f"port {port}", "in use on every address of this machine", "a port that is free there", cure)


def hold(block: int) -> socket.socket | None:
    """Claim one block; None when somebody holds it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0glm53-lab-127.0.{block}")
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return held


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that wind down do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
