"""Calls between boxes, proved with GROUP_SECRET: HMAC-SHA256 over what is asked, of whom, and a nonce of the callee.

The callee issues the nonce, so a recorded call is worth nothing; the address that was dialled is part of the code, so
a box in the middle cannot pass a call on to another; the answer's code covers the call's, so it answers that call.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

CALL_HEADER = "glm53-call"
ANSWER_HEADER = "glm53-answer"
NONCE_S = 30.0
MOST_SPENT = 4096
_VERSION = "1"


@dataclass
class Nonces:
    """Nonces of this start of this box. Only those that were spent on a good call are kept, until they end."""

    clock: Callable[[], float] = time.monotonic
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _spent: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def issue(self) -> str:
        """A fresh nonce: random part, end, and our own code over both. Nothing is kept: asking costs no memory."""
        body = f"{secrets.token_hex(16)}.{int(self.clock() + NONCE_S)}"
        return f"{body}.{self._code(body)}"

    def ours(self, nonce: str) -> bool:
        """True for a nonce that we issued, whose time is not over and that was not spent."""
        body, _, code = nonce.rpartition(".")
        if not hmac.compare_digest(code.encode(errors="replace"), self._code(body).encode()):
            return False
        return int(body.rpartition(".")[2]) >= self.clock() and nonce not in self._spent

    def spend(self, nonce: str) -> None:
        """Never again. Called for a call whose code was right, so only members can fill the table."""
        now = self.clock()
        while self._spent and (len(self._spent) >= MOST_SPENT or next(iter(self._spent.values())) < now):
            self._spent.popitem(last=False)
        self._spent[nonce] = now + NONCE_S + 1

    def full(self) -> bool:
        """True when a further call would push out a nonce that could still be used again."""
        now = self.clock()
        return len(self._spent) >= MOST_SPENT and next(iter(self._spent.values())) >= now

    def _code(self, body: str) -> str:
        return hmac.new(self._key, body.encode(errors="replace"), hashlib.sha256).hexdigest()[:32]


def call_code(secret: str, group: str, dialled: str, method: str, path: str, body: bytes, nonce: str) -> str:
    """The caller's proof, in hex."""
    return _code(secret, "call", group, dialled, method, path, hashlib.sha256(body).hexdigest(), nonce)


def answer_code(secret: str, group: str, call: str, status: int, body: bytes) -> str:
    """The callee's proof over its answer to that one call, in hex."""
    return _code(secret, "answer", group, call, str(status), hashlib.sha256(body).hexdigest())


def call_header(nonce: str, code: str) -> str:
    """The header's value."""
    return f"{nonce} {code}"


def judge_call(
    header: str, nonces: Nonces, secret: str, group: str, dialled: str, method: str, path: str, body: bytes
) -> str | None:
    """The call's code when the header proves it, else None. A nonce that proved one call is spent."""
    nonce, _, given = header.partition(" ")
    if not nonces.ours(nonce) or nonces.full():
        return None
    known = call_code(secret, group, dialled, method, path, body, nonce)
    if not same(given, known):
        return None
    nonces.spend(nonce)
    return known


def same(given: str, known: str) -> bool:
    """Two codes, compared in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), known.encode())


def _code(secret: str, *parts: str) -> str:
    """Every part is preceded by its length, so no two lists of parts look alike."""
    encoded = [part.encode(errors="replace") for part in ("glm53 box to box", _VERSION, *parts)]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in encoded)
    return hmac.new(secret.encode(errors="replace"), message, hashlib.sha256).hexdigest()
