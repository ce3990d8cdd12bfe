"""Who may look: the token, the cookie made from it, and which Host and Origin a request may carry. Pure.

Without a token the page and its JSON are readable from the LAN, and nothing that reads files is.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from core.mask import read_secret
from core.refusal import Refusal

SHORTEST_TOKEN = 16
COOKIE_S = 12 * 3600
GUESSES = 10  # wrong tokens of one address within GUESS_S; then it waits
GUESS_S = 60.0
MOST_GUESSERS = 1024
HOW = (
    "Reading files and logs is off on this box. To turn it on set STATUS_TOKEN (16 characters or more, e.g. what "
    "openssl rand -hex 24 prints) or STATUS_TOKEN_FILE in compose/.env and start the box again. Programs then send it "
    "as a bearer in the Authorization header, people enter it at /login."
)
# Worded so that core/mask.py, which every answer of a tool passes, sees no secret in it.
NEEDED = (
    "This is for those who hold this box's STATUS_TOKEN, sent as a bearer in the Authorization header "
    "or entered at /login."
)
WRONG = "The token that was sent is wrong. "


class Waits(Exception):
    """Too many wrong tokens from this address; the text says how long it waits."""


@dataclass
class Access:
    """The rules of one box. `token` None: nothing that reads files is readable by anybody."""

    token: str | None = None
    cookie: str = "glm53"
    clock: Callable[[], float] = time.time
    _wrong: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)

    @property
    def how(self) -> str:
        """What to tell somebody who may not read files."""
        return NEEDED if self.token else HOW

    @property
    def wrong(self) -> str:
        """What to tell somebody whose token does not open."""
        return WRONG + NEEDED if self.token else HOW

    def bearer(self, header: str, address: str) -> bool:
        """True for `Authorization: Bearer <token>`. Counts wrong ones; raises Waits when there were too many."""
        kind, _, given = header.partition(" ")
        return kind.lower() == "bearer" and self.matches(given.strip(), address)

    def matches(self, given: str, address: str) -> bool:
        """True for the token itself, compared in constant time. Raises Waits after too many wrong ones."""
        if self.token is None:  # nothing to guess
            return False
        self._may_try(address)
        if hmac.compare_digest(_digest(given), _digest(self.token)):
            return True
        self._note_wrong(address)
        return False

    def make_cookie(self) -> str:
        """A cookie's value: it proves the token without holding it, and ends by itself."""
        until = str(int(self.clock()) + COOKIE_S)
        return f"{until}.{self._cookie_code(until)}"

    def cookie_holds(self, value: str) -> bool:
        """True for a cookie that this box's token made and whose time is not over."""
        until, _, code = value.partition(".")
        if self.token is None or not (until.isascii() and until.isdigit() and len(until) < 12):
            return False
        known = self._cookie_code(until)
        return hmac.compare_digest(code.encode(errors="replace"), known.encode()) and int(until) > self.clock()

    def _cookie_code(self, until: str) -> str:
        return hmac.new((self.token or "").encode(), f"glm53 page cookie {until}".encode(), hashlib.sha256).hexdigest()

    def _may_try(self, address: str) -> None:
        now = self.clock()
        times = [at for at in self._wrong.get(address, ()) if now - at < GUESS_S]
        if len(times) >= GUESSES:
            raise Waits(f"too many wrong tokens from {address}: wait {int(GUESS_S - (now - times[0])) + 1} s")

    def _note_wrong(self, address: str) -> None:
        times = self._wrong.setdefault(address, [])
        times.append(self.clock())
        del times[:-GUESSES]
        self._wrong.move_to_end(address)
        while len(self._wrong) > MOST_GUESSERS:
            self._wrong.popitem(last=False)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def token_of(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """(token, complaint): from STATUS_TOKEN_FILE, else STATUS_TOKEN. A bad one is no token, with the reason."""
    path = environ.get("STATUS_TOKEN_FILE") or ""
    if path:
        found = read_secret(path)
        if found is None:
            return None, f"{path} cannot be read"
        return (found, "") if len(found) >= SHORTEST_TOKEN else (None, f"{path} holds {len(found)} characters")
    token = environ.get("STATUS_TOKEN") or ""
    if not token:
        return None, ""
    return (token, "") if len(token) >= SHORTEST_TOKEN else (None, "a token that is too short")


def refusals(environ: Mapping[str, str], bind: str, lan: str, tp: int) -> tuple[Refusal, ...]:
    """What is wrong with who may look: a token that cannot be used, a page the other boxes cannot reach."""
    found = []
    _, complaint = token_of(environ)
    if complaint and environ.get("STATUS_TOKEN_FILE"):
        cure = "Write 16 characters or more into it (openssl rand -hex 24), or unset STATUS_TOKEN_FILE."
        found.append(Refusal("STATUS_TOKEN_FILE", complaint, "a readable file with the token", cure))
    if tp > 1 and lan and bind not in ("0.0.0.0", lan):
        expected = f"0.0.0.0 or {lan}: the boxes meet through the page"
        cure = "Unset STATUS_BIND; to keep others away, let a firewall admit the boxes only (docs/security.md)."
        found.append(Refusal("STATUS_BIND", bind, expected, cure))
    return tuple(found)


def access_of(environ: Mapping[str, str], port: int) -> Access:
    """The rules of this box. The cookie is named after the port: browsers send cookies to every port of a host."""
    return Access(token_of(environ)[0], cookie=f"glm53_{port}")


def host_allowed(header: str | None, names: Collection[str]) -> bool:
    """True for a Host header that is an address, or one of `names` (lower case).

    A page of another site that makes its own name point here (DNS rebinding) carries that name, never an address.
    """
    if not header:
        return False
    host = header.strip().lower()
    if host.startswith("["):
        inner, closed, port = host[1:].partition("]")
        return bool(closed) and _port(port) and _is_address(inner)
    name, colon, port = host.partition(":")
    return _port(colon + port) and (_is_address(name) or name.rstrip(".") in names)


def origin_allowed(header: str | None, host: str | None) -> bool:
    """True without an Origin, and for the page's own: the same host and port over http or https."""
    if header is None:
        return True
    scheme, found, rest = header.strip().lower().partition("://")
    return bool(found) and scheme in ("http", "https") and rest == (host or "").strip().lower()


def own_names(hostname: str, more: str) -> frozenset[str]:
    """The names this box answers to: localhost, its own with and without .local, and `more` (host[:port],...)."""
    own = hostname.lower().rstrip(".")
    short = own.partition(".")[0]
    given = (part.partition(":")[0].strip().lower().rstrip(".") for part in more.split(","))
    return frozenset({"localhost", own, short, f"{short}.local", *given} - {"", ".local"})


def _port(text: str) -> bool:
    return text == "" or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and int(text[1:][:6]) < 65536)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
