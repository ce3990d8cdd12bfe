"""Kits whose engine is lab/engine.py: real gloo ranks in a real rendezvous, a token needs all of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from lab import vllm
from launcher.environments import python_of
from tests.main.kits.boxes import ROOT, Box, boxes, engines_of, serving, until

__all__ = ["Box", "ask", "engines_of", "fault", "kits", "ranks", "serving", "stop_rank", "until"]


@contextlib.contextmanager
def kits(folder: Path, count: int, **settings: str) -> Iterator[list[Box]]:
    """Started kits, not yet serving."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "engine"
    # one thread a rank, and only loopback for gloo: the kit's own environment builder names the interface
    script.write_text(f'#!/bin/sh\nexec "{python_of(vllm.environment())}" "{ROOT}/lab/engine.py" "$@"\n')
    script.chmod(0o755)
    with boxes(folder, count, count, ENGINE_PYTHON=str(script), **settings) as made:
        for box in made:
            box.start()
        yield made


def fault(box: Box, **what: Any) -> None:
    """What this box's next engine is told to do (see lab/engine.py)."""
    (box.folder / "model" / "fault.json").write_text(json.dumps(what))


def ask(box: Box, tokens: int = 2, timeout_s: float = 60) -> str:
    """The answer through this box's door; raises httpx.HTTPError for anything but an answer."""
    url = f"http://{box.lan}:8002/v1/chat/completions"
    body = {"model": "glm53", "messages": [{"role": "user", "content": "x"}], "max_tokens": tokens}
    answer = httpx.post(url, json=body, timeout=timeout_s, trust_env=False)
    answer.raise_for_status()
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def ranks(box: Box) -> list[int]:
    """Pids of this box's engine."""
    pid = box.status().get("engine", {}).get("pid")
    return [pid] if pid else []


def stop_rank(box: Box) -> int:
    """SIGSTOP this box's rank; its pid."""
    (pid,) = ranks(box)
    os.kill(pid, signal.SIGSTOP)
    return pid
