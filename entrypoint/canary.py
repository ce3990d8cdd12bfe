"""One token, asked of the head's own engine: every rank must work for it, so it proves them all alive.

The only answer to a silent box: silence alone may be a broken LAN beside working rails.
"""

from __future__ import annotations

from client.openai import Client
from client.reply import ClientError


async def one_token(base_url: str, model: str, api_key: str | None, deadline_s: float) -> str:
    """What went wrong within `deadline_s`; "" when a token came, or when the engine itself turned the question down."""
    try:
        async with Client(base_url, model, key=api_key, read_s=deadline_s) as client:
            await client.chat([{"role": "user", "content": "1"}], stream=False, deadline_s=deadline_s, max_tokens=1)
    except ClientError as error:
        if error.status is not None and error.status < 500:
            return ""  # too many requests, a template's complaint: it says nothing of the ranks
        return error.line
    return ""
