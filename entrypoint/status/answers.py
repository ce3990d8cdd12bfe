"""How the page answers: the headers that go with everything, and JSON."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}


def json_answer(body: Any, status: int = 200) -> Response:
    """`body` as JSON, with the page's headers."""
    return JSONResponse(body, status_code=status, headers=HEADERS)
