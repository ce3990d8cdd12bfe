"""Proof that a member knows GROUP_SECRET: HMAC-SHA256 over what was asked, of whom, and the answer.

The address that was dialled is part of it, so a box in the middle cannot pass another's answer off as
its own; the nonce is fresh for every request, so an old answer is worth nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from group.view import LARGEST, PROTOCOL, View, parse_view


class NotVerified(ValueError):
    """An answer that does not count; the text says why, for the page."""


def code(secret: str, group: str, dialled: str, nonce: str, body: str) -> str:
    """The HMAC in hex. Every part is preceded by its length, so no two lists of parts look alike."""
    parts = (str(PROTOCOL), group, dialled, nonce, body)
    message = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def answer(view: View, group: str, dialled: str, nonce: str, secret: str | None) -> bytes:
    """The bytes of one /member.json answer. `dialled` is the local address of the connection."""
    body = view.as_json()
    signed = code(secret, group, dialled, nonce, body) if secret else None
    return json.dumps(
        {"version": PROTOCOL, "group": group, "dialled": dialled, "nonce": nonce, "mac": signed, "body": body}
    ).encode()


def verify(text: bytes, group: str, dialled: str, nonce: str, secret: str | None) -> View:
    """The view inside an answer to our outstanding `nonce` from the address we dialled.

    Raises NotVerified for anything else: another protocol version, another group, a wrong or missing code.
    """
    if len(text) > LARGEST:
        raise NotVerified(f"answer larger than {LARGEST} bytes")
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        raise NotVerified("answer is not JSON: not a glm53 box?") from None
    if not isinstance(envelope, dict) or not isinstance(envelope.get("body"), str):
        raise NotVerified("answer is not a member's: not a glm53 box?")
    if envelope.get("version") != PROTOCOL:
        raise NotVerified(f"protocol version {str(envelope.get('version'))[:20]}, ours is {PROTOCOL}: update that box")
    if envelope.get("group") != group:
        raise NotVerified(f"belongs to group {str(envelope.get('group'))[:60]}, ours is {group}")
    if envelope.get("nonce") != nonce:
        raise NotVerified("answers another question (nonce)")
    body: str = envelope["body"]
    if not secret and envelope.get("mac") is not None:
        raise NotVerified("signs its answers: GROUP_SECRET is set there, and not here")
    if secret:
        given = envelope.get("mac")
        if not isinstance(given, str):
            raise NotVerified("does not sign: GROUP_SECRET is not set there")
        try:
            known = code(secret, group, dialled, nonce, body)
        except UnicodeEncodeError:  # a lone surrogate in JSON text
            raise NotVerified("unreadable text in the answer") from None
        if not hmac.compare_digest(given.encode(errors="replace"), known.encode()):
            raise NotVerified("signature does not match: another GROUP_SECRET, or a box in the middle")
    try:
        return parse_view(body)
    except (ValueError, RecursionError) as error:
        raise NotVerified(f"unreadable view: {error}") from None
