"""The plain form: one JSON-RPC request in one POST, no session, no handshake. Standard library only."""

from __future__ import annotations

import json
from typing import Any

from entrypoint.status.mcp.paging import dumps
from entrypoint.status.mcp.table import Tools

PARSE, INVALID, METHOD, PARAMS = -32700, -32600, -32601, -32602


class NotJson(ValueError):
    """A body that is no JSON."""


def parse(body: bytes) -> Any:
    """The body's value. Raises NotJson, also for NaN and for nesting nobody needs."""
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotJson("the body is not JSON") from None


async def answer(told: Any, tools: Tools, *, reader: bool, member: bool = False) -> tuple[int, bytes]:
    """(HTTP status, body) for a parsed body. An empty body answers a notification. Flags: see Tools.call."""
    if not isinstance(told, dict):
        return 400, error(None, INVALID, "one JSON-RPC request object in one POST")
    identity = told.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None) or len(str(identity)) > 200:
        return 400, error(None, INVALID, "id: a text or a whole number")
    method, params = told.get("method"), told.get("params")
    if told.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return 400, error(identity, INVALID, 'jsonrpc "2.0" and a method are expected')
    if not isinstance(params, dict | None):
        return 400, error(identity, PARAMS, "params: an object")
    if "id" not in told:
        return 202, b""
    if method == "ping":
        return 200, result(identity, {})
    if method == "tools/list":
        return 200, result(identity, {"tools": tools.listing()})
    if method == "tools/call":
        name = (params or {}).get("name")
        if not isinstance(name, str):
            return 400, error(identity, PARAMS, "name: which tool")
        arguments = (params or {}).get("arguments")
        return 200, result(identity, await tools.call(name, arguments, reader=reader, member=member))
    return 200, error(identity, METHOD, f"{method[:80]}: here are tools/list, tools/call and ping")


def result(identity: Any, value: Any) -> bytes:
    """A JSON-RPC result."""
    return dumps({"jsonrpc": "2.0", "id": identity, "result": value})


def error(identity: Any, code: int, text: str) -> bytes:
    """A JSON-RPC error."""
    return dumps({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": text}})


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
