"""Ask another box's tools: which box is meant, the signed call, and an answer that is judged before it counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrypoint.status.fetch import Fetched, FetchFailed, fetch
from entrypoint.status.signed import ANSWER_HEADER, CALL_HEADER, answer_code, call_code, call_header, same

if TYPE_CHECKING:
    from entrypoint.boot import Boot

PATH, NONCE_PATH = "/mcp", "/nonce.json"
NONCE_TIMEOUT_S = 3.0
TIMEOUT_S = 30.0  # longer than the slowest tool
LARGEST = 96 * 1024
HERE = ("", "self", "local", "this")
NO_SECRET = (
    "Files and logs of another box are read only where GROUP_SECRET is set on all boxes: calls between boxes are "
    "signed with it. Ask that box's own page instead."
)


class ForwardFailed(Exception):
    """The other box could not be asked, or did not answer as a box does."""


@dataclass(frozen=True)
class Peer:
    """A verified member."""

    lan: str
    port: int
    hostname: str


def peers(boot: Boot) -> tuple[Peer, ...]:
    """The members that count now; an announcement alone is nobody to ask."""
    members = boot.members
    if members is None:
        return ()
    return tuple(
        Peer(lan, view.port, view.about.hostname) for lan, view in sorted(members.live().items()) if lan != boot.lan
    )


def choose(node: str, lan: str, hostname: str, port: int, others: Sequence[Peer]) -> Peer | None:
    """The box that `node` names by host name, address or address:port; None for this box. Raises ForwardFailed."""
    wanted = node.strip().lower().rstrip(".")
    if wanted in HERE or (wanted and wanted in (hostname.lower(), lan, f"{lan}:{port}")):
        return None
    found = [peer for peer in others if wanted in (peer.hostname.lower(), peer.lan, f"{peer.lan}:{peer.port}")]
    if len(found) == 1:
        return found[0]
    known = ", ".join([f"{hostname} ({lan or 'this box'})", *(f"{peer.hostname} ({peer.lan})" for peer in others)])
    why = "no box" if not found else f"{len(found)} boxes"
    raise ForwardFailed(f"node: {why} called {node[:80]!r}; there are {known}")


async def call(boot: Boot, peer: Peer, tool: str, arguments: dict[str, Any], *, reads_files: bool) -> dict[str, Any]:
    """The result object of that box's tool (content and isError). Raises ForwardFailed."""
    settings = boot.settings
    secret = settings.text("GROUP_SECRET") if settings is not None else ""
    if reads_files and not secret:
        raise ForwardFailed(NO_SECRET)
    group = boot.text("GROUP_NAME", "glm53")
    source = boot.lan if settings is not None and settings.is_set("LAN_ADDRESS") else ""
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    code = ""
    try:
        if secret:
            nonce = await _nonce(peer, source)
            code = call_code(secret, group, peer.lan, "POST", PATH, body, nonce)
            headers[CALL_HEADER] = call_header(nonce, code)
        answer = await fetch(
            peer.lan,
            peer.port,
            PATH,
            method="POST",
            headers=headers,
            body=body,
            timeout_s=TIMEOUT_S,
            largest=LARGEST,
            source=source,
        )
    except FetchFailed as error:
        raise ForwardFailed(str(error)) from None
    if secret:
        known = answer_code(secret, group, code, answer.status, answer.body)
        if not same(answer.headers.get(ANSWER_HEADER, ""), known):
            raise ForwardFailed(
                f"{peer.lan}: the answer is not signed by a box that knows GROUP_SECRET (HTTP {answer.status})"
            )
    return judged(answer, peer.lan)


def judged(answer: Fetched, where: str) -> dict[str, Any]:
    """The result inside an answer of a box's /mcp, made anew from the parts we know. Raises ForwardFailed."""
    try:
        told = json.loads(answer.body)
        result = told["result"]
        texts = [part["text"] for part in result["content"] if part["type"] == "text"]
        failed = result["isError"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ForwardFailed(f"{where}: HTTP {answer.status} without a tool's result") from None
    if not all(isinstance(text, str) for text in texts) or not isinstance(failed, bool) or len(texts) != 1:
        raise ForwardFailed(f"{where}: HTTP {answer.status} without a tool's result")
    return {"content": [{"type": "text", "text": texts[0]}], "isError": failed}


async def _nonce(peer: Peer, source: str) -> str:
    answer = await fetch(peer.lan, peer.port, NONCE_PATH, timeout_s=NONCE_TIMEOUT_S, largest=4096, source=source)
    try:
        nonce = json.loads(answer.body)["nonce"]
    except (ValueError, KeyError, TypeError, RecursionError):
        nonce = None
    if not isinstance(nonce, str) or not nonce.isascii() or not nonce.isprintable() or not 0 < len(nonce) <= 200:
        raise FetchFailed(f"{peer.lan}: HTTP {answer.status} without a nonce (is GROUP_SECRET set there?)")
    return nonce
