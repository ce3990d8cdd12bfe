"""All boxes as one page: the others' /status.json, fetched only while somebody looks, bounded in time and size.

Only verified members are asked, at the address they were verified at. What they answer is data to show: it is read
by the published schema and changes nothing here.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrypoint.status.shape import parse, schema
from group.ask import boottime
from group.get import get
from group.view import by_address

if TYPE_CHECKING:
    from entrypoint.boot import Boot

ASK_S = 2.0
FRESH_S = 1.0  # a younger answer is not asked for again
FIRST_S = 0.5  # so long a page waits for answers when it has none that is young
STALE_S = 6.0  # an older answer is no longer shown
LARGEST = 512 * 1024
MOST = 16  # boxes asked; a group has six


@dataclass
class Seen:
    """The last answer of one box and when it came; the error of the last try."""

    status: dict[str, Any] | None = None
    at: float = 0.0
    asked: float = 0.0
    error: str = ""
    task: asyncio.Task[None] | None = None


def peer_schema() -> dict[str, Any]:
    """What is read of another box's status."""
    boxes: dict[str, Any] = schema("cluster")["properties"]["boxes"]["items"]["properties"]["status"]
    return {**boxes, "type": "object"}


class Cluster:
    """The other boxes' statuses. `look()` gives what is known and sees to it that it is young."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.seen: dict[tuple[str, int], Seen] = {}

    async def look(self) -> dict[str, Any]:
        """The whole of /cluster.json."""
        wanted = self._wanted()
        self.seen = {key: self.seen.get(key) or Seen() for key in wanted}
        now = boottime()
        for key, one in self.seen.items():
            if now - one.asked > FRESH_S and (one.task is None or one.task.done()):
                one.asked = now
                one.task = asyncio.create_task(self._fetch(key, one))
        new = [one.task for one in self.seen.values() if one.task is not None and now - one.at > STALE_S]
        new = [task for task in new if not task.done()]
        if new:
            await asyncio.wait(new, timeout=FIRST_S)
        return self.as_dict()

    def _wanted(self) -> list[tuple[str, int]]:
        members = self.boot.members.table.values() if self.boot.members is not None else ()
        return sorted(((one.lan, one.port) for one in members), key=lambda one: by_address(one[0]))[:MOST]

    def _names(self) -> dict[str, str]:
        """Host names as the boxes' last views said them."""
        members = self.boot.members.table.values() if self.boot.members is not None else ()
        return {one.lan: one.sight.view.about.hostname[:80] for one in members if one.sight.view is not None}

    def as_dict(self) -> dict[str, Any]:
        """What is known now."""
        own, now = self.boot.board.status(), boottime()
        heard = {one["lan"]: one["age_s"] for one in own["members"]}
        names = self._names()
        rows = [_row(own["box"]["lan"], self.boot.status_port, True, Seen(own, now), now, 0.0)]
        rows += [_row(lan, port, False, one, now, heard.get(lan)) for (lan, port), one in self.seen.items()]
        for row in rows:  # a box that fell silent before anybody looked is still called by its name
            row["name"] = row["name"] or names.get(row["lan"], "")
        rows.sort(key=lambda row: by_address(row["lan"]) if row["lan"] else 0)
        said = {(row["status"]["word"], row["status"]["sentence"]) for row in rows if row["status"]}
        verdict = {name: own[name] for name in ("healthy", "mood", "word", "sentence")}
        return {**verdict, "agree": len(said) == 1, "seen_from": own["box"]["lan"], "boxes": rows}

    async def _fetch(self, key: tuple[str, int], one: Seen) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                source = self.boot.lan if self._bound() else ""
                text = await get(*key, "/status.json", largest=LARGEST, source=source)
            one.status, one.at, one.error = parse(text, peer_schema()), boottime(), ""
        except TimeoutError:
            one.error = f"no whole answer within {ASK_S:g} s"
        except OSError as error:  # asyncio's own text is "[Errno 111] Connect call failed ('10.0.0.9', 8082)"
            one.error = os.strerror(error.errno) if error.errno else "unreachable"
        except ValueError as error:
            one.error = str(error)[:300] or type(error).__name__

    def _bound(self) -> bool:
        settings = self.boot.settings
        return settings is not None and settings.is_set("LAN_ADDRESS")

    def close(self) -> None:
        """End what is under way."""
        for one in self.seen.values():
            if one.task is not None:
                one.task.cancel()


def _row(lan: str, port: int, here: bool, one: Seen, now: float, heard_s: float | None) -> dict[str, Any]:
    young = one.status is not None and now - one.at < STALE_S
    names = peer_schema()["properties"]
    status = {name: one.status[name] for name in names} if young and one.status is not None else None
    return {
        "lan": lan,
        "name": one.status["service"]["hostname"] if one.status is not None else "",
        "url": f"http://{lan}:{port}" if lan else "",
        "here": here,
        "reachable": None if not one.at and not one.error else young and not one.error,
        "age_s": round(now - one.at, 1) if one.at else None,
        "heard_s": heard_s,
        "error": one.error,
        "status": status,
    }
