"""A box's /member.json without a kit behind it: real HTTP on a loopback address, with a view the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from group.signing import answer
from group.view import About, View

Answer = Callable[[str, str], bytes]


def view(lan: str, port: int, instance: str = "bb", sequence: int = 1, peers: tuple[str, ...] = ()) -> View:
    return View(lan, port, instance, 0, sequence, "joining", 0, about=About(hostname="fake", peers=peers))


class FakeBox:
    """Serves `say(nonce, dialled)` on host:port until closed. Sequence numbers grow with every answer."""

    def __init__(self, host: str, *, instance: str = "bb", group: str = "g", secret: str | None = None) -> None:
        self.host, self.port = host, 0
        self.instance, self.group, self.secret = instance, group, secret
        self.peers: tuple[str, ...] = ()
        self.lan = host
        self.asked = 0
        self.news: list[bool] = []  # of every question: did it say that the asker has changed
        self.sequence: int | None = None
        self.raw: bytes | None = None
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._answer, self.host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def say(self, nonce: str, dialled: str) -> bytes:
        self.asked += 1
        seen = view(self.lan, self.port, self.instance, self.sequence or self.asked, self.peers)
        return answer(seen, self.group, dialled, nonce, self.secret)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
        if self.raw is not None:
            writer.write(self.raw)
        else:
            asked = parse_qs(urlsplit(line).query)
            nonce = asked["nonce"][0]
            self.news.append("news" in asked)
            body = self.say(nonce, writer.get_extra_info("sockname")[0])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
