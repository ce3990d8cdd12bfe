"""The key that clients must send: read from its file or its knob, handed to the engine's environment, never written."""

from __future__ import annotations

from pathlib import Path

from core.refusal import Refusal
from core.settings import Settings


def api_key(settings: Settings) -> str | None:
    """The key of API_KEY_FILE or API_KEY; None when neither is set. Raises Refusal for a file without one."""
    return key_of(settings.text("API_KEY_FILE")) or settings.text("API_KEY") or None


def key_of(path: str) -> str:
    """The one line that the file holds; "" without a path. A file without a key must not open the API to all."""
    if not path:
        return ""
    try:
        key = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise _refusal(f"{path}: {why}") from None
    if not key or not key.isascii() or not key.isprintable():
        raise _refusal(f"{path} with {len(key.splitlines())} lines" if key else f"{path}, which is empty")
    return key


def _refusal(seen: str) -> Refusal:
    expected = "a readable file with the key in one line"
    return Refusal("API_KEY_FILE", seen, expected, "Mount it, write the key into it, or unset API_KEY_FILE.")
