"""Two free ports for a generation, from a counter below the ephemeral range."""

from __future__ import annotations

import socket


def parse_range(text: str) -> tuple[int, int]:
    """`20000-28191` -> (20000, 28191), both included. Raises ValueError that says what is accepted."""
    low, _, high = text.partition("-")
    if not (low.isdigit() and high.isdigit() and 1024 <= int(low) < int(high) <= 65535):
        raise ValueError("a range such as 20000-28191")
    return int(low), int(high)


def find_ports(low: int, high: int, counter: int) -> tuple[int, int] | None:
    """The first two neighbours from 2 x `counter` on (wrapping) that can be bound; None when none can.

    The counter grows with the epoch, so generation after generation gets ports of its own: a straggler of the last one
    finds nobody on its old port.
    """
    pairs = (high - low + 1) // 2
    for turn in range(pairs):
        first = low + 2 * ((counter + turn) % pairs)
        if _free(first) and _free(first + 1):
            return first, first + 1
    return None


def _free(port: int) -> bool:
    """True when the port can be bound on every address (torch's store binds the wildcard one)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
