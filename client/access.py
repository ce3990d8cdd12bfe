"""What a user gives to reach a server: the key and the base address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import httpx

from core.refusal import Refusal


def api_key(environ: Mapping[str, str] | None = None, file: str | None = None) -> str | None:
    """The key: `file`, else API_KEY_FILE, else API_KEY, else OPENAI_API_KEY; None without any.

    Raises Refusal when a named file cannot be read or is empty.
    """
    have = os.environ if environ is None else environ
    path = file or have.get("API_KEY_FILE")
    if path:
        try:
            text = Path(path).read_text().strip()
        except OSError as error:
            raise Refusal("API_KEY_FILE", f"{path} ({error.strerror})", "a readable file", f"ls -l {path}") from None
        if not text:
            raise Refusal("API_KEY_FILE", f"{path} is empty", "a file that holds the key", f"Write the key into {path}")
        return text
    return have.get("API_KEY") or have.get("OPENAI_API_KEY") or None


def root_of(base_url: str) -> str:
    """`http://host:8002` from any spelling of the base: a trailing slash or /v1 goes. Raises Refusal."""
    text = base_url.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise Refusal("base URL", base_url or "nothing", "http://host:port", "Try http://127.0.0.1:8002")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")
