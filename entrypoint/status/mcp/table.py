"""All tools, and the one way in which any of them is called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from core.log import log
from entrypoint.status import forward
from entrypoint.status.context import Context
from entrypoint.status.mcp import engine, files, state, versions
from entrypoint.status.mcp.paging import cut, dumps, page
from entrypoint.status.mcp.tool import Call, Tool, ToolError, secrets_of

TOOLS: tuple[Tool, ...] = (*state.TOOLS, *engine.TOOLS, *versions.TOOLS, *files.TOOLS)
AT_ONCE, SLOW_AT_ONCE = 8, 2
SLOW_S = 60.0  # a tool that may take longer: a few callers must not hold all places
BUSY_S = 5.0
LONGEST_ERROR = 2000
FILES_OFF = "Off: set STATUS_TOKEN. "


class Tools:
    """The tools of one box. `forwarder` asks another box; tests give their own."""

    def __init__(self, context: Context, forwarder: Callable[..., Any] = forward.call) -> None:
        self.context, self.forwarder = context, forwarder
        self.slots = asyncio.Semaphore(AT_ONCE - SLOW_AT_ONCE)
        self.slow = asyncio.Semaphore(SLOW_AT_ONCE)

    def listed(self) -> tuple[Tool, ...]:
        """Those that make sense on this box."""
        return tuple(tool for tool in TOOLS if tool.listed(self.context))

    def listing(self) -> list[dict[str, Any]]:
        """tools/list: those that read files say so where no token is set."""
        return [
            {
                "name": tool.name,
                "description": (FILES_OFF if tool.reads_files and not self.context.access.token else "") + tool.why,
                "inputSchema": tool.schema(),
                "annotations": {"readOnlyHint": True, "openWorldHint": False},
            }
            for tool in self.listed()
        ]

    async def call(self, name: str, arguments: Any, *, reader: bool, member: bool = False) -> dict[str, Any]:
        """The result object of tools/call. Never raises.

        `reader`: the caller proved that it may read files; `member`: it is another box, whose call ends here.
        """
        try:
            return await self._call(name, arguments, reader, member)
        except (ToolError, forward.ForwardFailed) as error:
            text = str(error)
        except TimeoutError:
            text = f"{name}: out of time"
        except Exception as error:  # noqa: BLE001  (a defect of one tool is told and logged, the page goes on)
            log("mcp", f"{name[:80]}: {type(error).__name__}: {error}"[:LONGEST_ERROR])
            text = f"{name}: failed inside ({type(error).__name__}); the kit's log has the reason"
        shown = cut(text, secrets_of(self.context), LONGEST_ERROR)
        return {"content": [{"type": "text", "text": shown}], "isError": True}

    async def _call(self, name: str, arguments: Any, reader: bool, member: bool) -> dict[str, Any]:
        tool = next((one for one in self.listed() if one.name == name), None)
        if tool is None:
            raise ToolError(f"{name[:80]}: no such tool; there are {', '.join(one.name for one in self.listed())}")
        if tool.reads_files and not reader:
            raise ToolError(self.context.access.how)
        given = tool.read(arguments)
        node = given.pop("node", "")
        if node and member:
            raise ToolError("node: what another box asks is not passed on")
        async with _slot(self.slow if tool.seconds > SLOW_S else self.slots):
            peer = self._peer(node) if node else None
            if peer is not None:
                sent = {key: value for key, value in given.items() if value is not None}
                result = await self.forwarder(self.context.boot, peer, name, sent, reads_files=tool.reads_files)
                return self._again(result)
            async with asyncio.timeout(tool.seconds):
                found = await tool.run(Call(self.context, given))
            text = page(found, given["cursor"], self._head(), secrets_of(self.context))
        return {"content": [{"type": "text", "text": text}], "isError": False}

    def _head(self) -> dict[str, str]:
        boot = self.context.boot
        where = f"{boot.hostname} ({boot.lan or 'no address yet'})" if boot is not None else ""
        return {"box": where, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def _peer(self, node: str) -> forward.Peer | None:
        boot = self.context.boot
        if boot is None:
            raise ToolError("node: this box knows no others yet")
        return forward.choose(node, boot.lan, boot.hostname, boot.status_port, forward.peers(boot))

    def _again(self, result: dict[str, Any]) -> dict[str, Any]:
        """Another box's answer, as little trusted as a caller: of our size, without our secrets, valid JSON."""
        import json

        text, failed = result["content"][0]["text"], result["isError"]
        secrets = secrets_of(self.context)
        if failed:
            return {"content": [{"type": "text", "text": cut(text, secrets, LONGEST_ERROR)}], "isError": True}
        try:
            told = json.loads(text, parse_constant=_no_constant)
            shown = dumps(cut(told, secrets, 20 * 1024)).decode()
        except (ValueError, RecursionError):
            raise ToolError("the other box's answer is not JSON") from None
        return {"content": [{"type": "text", "text": shown}], "isError": False}


class _slot:
    """One of the few calls that may run at once. Raises ToolError when none is free for BUSY_S."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self.slots = slots

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(BUSY_S):
                await self.slots.acquire()
        except TimeoutError:
            raise ToolError("too many calls run already: try again in a moment") from None

    async def __aexit__(self, *_: object) -> None:
        self.slots.release()


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
