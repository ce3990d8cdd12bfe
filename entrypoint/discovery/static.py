"""PEERS=host[:port],...: hints from a list, for LANs that drop multicast."""

from __future__ import annotations

from entrypoint.discovery.provider import STATIC, Announcement, Hint, OnHint


class StaticPeers:
    """Every entry is a hint from the start; the default port is this box's own page port."""

    name = STATIC

    def __init__(self, peers: tuple[str, ...]) -> None:
        self.peers = peers

    async def start(self, announcement: Announcement, on_hint: OnHint) -> None:
        """Give all hints at once."""
        for peer in self.peers:
            host, _, port = peer.rpartition(":") if ":" in peer else (peer, "", "")
            on_hint(Hint(host, int(port) if port else announcement.port, self.name), True)

    async def stop(self) -> None:
        """Nothing is held."""

    def report(self) -> tuple[str, ...]:
        """The list itself."""
        return ("PEERS=" + ",".join(self.peers),) if self.peers else ("PEERS is not set",)
