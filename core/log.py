"""The one log format: `stage=... key=value`, a line an event, on stdout."""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from typing import Any, TextIO

from core.mask import hide, known_secrets


def one_line(text: str) -> str:
    """Control characters and halves of characters written as escapes: what other boxes say stays one line."""
    if text.isprintable():
        return text
    escaped = (character if character.isprintable() else repr(character)[1:-1] for character in text)
    return "".join(escaped)


def _quoted(value: Any) -> str:
    text = one_line(str(value))
    return f'"{text}"' if " " in text or text == "" else text


def line(stage: str, message: str = "", **fields: Any) -> str:
    """One log line without a time stamp: `stage=join "waiting for 2 of 4" seen=2`."""
    parts = [f"stage={stage}"]
    if message:
        parts.append(one_line(message))
    parts += [f"{key}={_quoted(value)}" for key, value in fields.items()]
    return " ".join(parts)


def log(stage: str, message: str = "", *, stream: TextIO | None = None, **fields: Any) -> None:
    """Write one line with local time, at once (a container's log is read while it runs)."""
    stamp = time.strftime("%H:%M:%S")
    text = hide(line(stage, message, **fields), _secrets())
    print(f"{stamp} {text}", file=stream or sys.stdout, flush=True)


@cache
def _secrets() -> tuple[str, ...]:
    """What no line may hold, whatever it repeats: the secrets this process was started with."""
    return known_secrets(os.environ)
