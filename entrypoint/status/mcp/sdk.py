"""The official SDK's streamable HTTP over the same tools. Loaded for the first client that shakes hands: 35 MiB.

Without sessions: every POST stands alone, so nothing is kept for clients that never come back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams
from starlette.types import Receive, Scope, Send

from entrypoint.status.mcp.table import Tools

READER = "glm53.reader"  # in the ASGI scope: the caller proved that it may read files
LARGEST_BODY = 64 * 1024


class Sdk:
    """The SDK's server; `run()` lives as long as the page."""

    def __init__(self, tools: Tools, name: str, version: str) -> None:
        # What clients get wrong is answered to them; a line each would let anybody fill the log.
        logging.getLogger("mcp").addHandler(logging.NullHandler())
        logging.getLogger("mcp").propagate = False
        self.tools = tools
        server: Server[Any] = Server(
            name,
            version=version,
            instructions="Read-only tools of one box of a glm53 group; `node` asks another box.",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self.manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=LARGEST_BODY
        )
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self.manager.run():
            self.ready.set()
            await asyncio.Event().wait()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One POST."""
        await self.ready.wait()
        await self.manager.handle_request(scope, receive, send)

    async def _list(self, context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        return ListToolsResult.model_validate({"tools": self.tools.listing()})

    async def _call(self, context: Any, params: CallToolRequestParams) -> CallToolResult:
        reader = context.request is not None and bool(context.request.scope.get(READER))
        found = await self.tools.call(params.name, params.arguments, reader=reader)
        return CallToolResult.model_validate(found)
