"""The knobs that entrypoint/status reads; they are read before all others, so that the page can show a bad one."""

from __future__ import annotations

import ipaddress

from core.knob import Knob


def _address(text: str) -> str | None:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return "an IPv4 address of this box, or 0.0.0.0"
    return None


KNOBS: tuple[Knob, ...] = (
    Knob("STATUS_PORT", "port", "8082", "Port of the page; the boxes also meet through it, so it is equal on all."),
    Knob(
        "STATUS_BIND",
        "text",
        "0.0.0.0",
        "Address the page listens on. The other boxes must reach it: a loopback address hides this box from them.",
        scope="box",
        check=_address,
    ),
    Knob("SERVICE_NAME", "text", "glm53", "The name in the page's title.", scope="box"),
)
