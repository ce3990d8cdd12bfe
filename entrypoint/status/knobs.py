"""The knobs that entrypoint/status reads; they are read before all others, so that the page can show a bad one."""

from __future__ import annotations

import ipaddress
import re

from core.knob import Knob


def _address(text: str) -> str | None:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return "an IPv4 address of this box, or 0.0.0.0"
    return None


def _token(text: str) -> str | None:
    return None if len(text) >= 16 else "16 characters or more, e.g. from openssl rand -hex 24"


def _names(text: str) -> str | None:
    fit = all(part.strip() and re.fullmatch(r"[A-Za-z0-9._-]+", part.strip()) for part in text.split(","))
    return None if fit else "host names without ports, separated by commas"


def _folders(text: str) -> str | None:
    fit = all(part.strip().startswith("/") and part.strip() != "/" for part in text.split(","))
    return None if fit else "absolute folders, separated by commas"


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
    Knob(
        "STATUS_TOKEN",
        "text",
        None,
        "Who sends it may read files and logs through the page and /mcp; unset, nobody may. Prefer STATUS_TOKEN_FILE.",
        scope="box",
        secret=True,
        check=_token,
    ),
    Knob("STATUS_TOKEN_FILE", "path", None, "File with that token, as seen by the kit.", scope="box"),
    Knob(
        "STATUS_HOSTS",
        "text",
        None,
        "Further host names this box's page is reached by, separated by commas; addresses need not be named.",
        scope="box",
        check=_names,
    ),
    Knob(
        "SEARCH_ROOTS",
        "text",
        None,
        "Folders that holders of the token may read beside LOG_DIR; unset, CACHE_ROOT and vLLM's own source.",
        scope="box",
        check=_folders,
    ),
)
