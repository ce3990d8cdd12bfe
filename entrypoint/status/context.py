"""What the page's route modules work with: one object, made once, handed to every `routes(context)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from entrypoint.status.access import Access
from entrypoint.status.signed import Nonces

if TYPE_CHECKING:
    from entrypoint.boot import Boot

MemberAnswer = Callable[[str, str, str, bool], bytes]
Look = Callable[[], Awaitable[dict[str, Any]]]


class Board(Protocol):
    """This box's own status; entrypoint/board.py is it."""

    def status(self) -> dict[str, Any]:
        """All of /status.json."""
        ...


@dataclass
class Context:
    """What routes may use.

    board          what this box says of itself
    member_answer  (nonce, address dialled, address that asks, whether it has news) -> bytes of /member.json
    look           all of /cluster.json: this box and what the others answered last
    boot           the whole boot, read-only: settings (None before stage 2), members, engine, lan; None in tests of
                   routes that do not need it
    access         who may look: the token's rules
    nonces         what other boxes sign their calls with
    paths          of all routes, known once the application is made
    """

    board: Board
    member_answer: MemberAnswer
    look: Look
    boot: Boot | None = None
    access: Access = field(default_factory=Access)
    nonces: Nonces = field(default_factory=Nonces)
    paths: tuple[str, ...] = field(default=())


def context_of(boot: Boot, access: Access) -> Context:
    """The context of a running box."""
    from entrypoint.status.cluster import Cluster

    cluster = Cluster(boot)
    return Context(boot.board, boot.member_answer, cluster.look, boot, access)
