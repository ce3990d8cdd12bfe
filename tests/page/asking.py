"""Ask a box's /mcp in the plain form, and take its answer apart."""

from __future__ import annotations

import json
from typing import Any

import httpx

TOKEN = "a-token-of-the-tests-0123456789"
SECRET = "the-group-secret-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def client(**more: Any) -> httpx.Client:
    """Never through a proxy; every request on a connection of its own."""
    return httpx.Client(trust_env=False, timeout=60, **more)


def rpc(lan: str, method: str, params: Any = None, headers: dict[str, str] | None = None) -> httpx.Response:
    """One JSON-RPC request."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    with client() as asking:
        return asking.post(f"http://{lan}:8082/mcp", json=body, headers=headers or {})


def call(lan: str, tool: str, headers: dict[str, str] | None = BEARER, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool that must work, as data."""
    text, failed = told(lan, tool, headers, **arguments)
    assert not failed, text
    found: dict[str, Any] = json.loads(text)
    return found


def told(lan: str, tool: str, headers: dict[str, str] | None = BEARER, **arguments: Any) -> tuple[str, bool]:
    """(text, isError) of a call."""
    answer = rpc(lan, "tools/call", {"name": tool, "arguments": arguments}, headers)
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert len(result["content"]) == 1
    assert len(answer.content) < 40_000
    return result["content"][0]["text"], result["isError"]


def everything(lan: str, tool: str, **arguments: Any) -> list[Any]:
    """All items, page by page."""
    items: list[Any] = []
    cursor = 0
    for _ in range(1000):
        page = call(lan, tool, cursor=cursor, **arguments)
        items += page["items"]
        if page["next"] is None:
            return items
        assert page["next"] > cursor
        cursor = page["next"]
    raise AssertionError("paging does not end")
