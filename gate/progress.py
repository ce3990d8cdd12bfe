"""The terminal: one living line for the check that runs, one lasting line for each that is done."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from core.units import show_seconds

MARKS = {"pass": "pass", "fail": "FAIL", "inconclusive": "????"}
EVERY_S = 10.0  # between two lines where the output is no terminal


class Progress:
    """Writes to `stream` (stderr): rewrites a line on a terminal, adds a line every EVERY_S elsewhere."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._quiet = quiet
        self._head = ""
        self._started = time.monotonic()
        self._shown = 0.0

    def begin(self, head: str) -> None:
        """A check starts."""
        self._head, self._started, self._shown = head, time.monotonic(), time.monotonic()
        self._write(f"{head} ...", lasting=False)

    def note(self, text: str) -> None:
        """Where it stands."""
        now = time.monotonic()
        if not self._live and now - self._shown < EVERY_S:
            return
        if now - self._shown < 0.1:
            return
        self._shown = now
        self._write(f"{self._head} {show_seconds(now - self._started)}  {text}", lasting=not self._live)

    def end(self, verdict: str, reason: str) -> None:
        """A check is done."""
        took = show_seconds(time.monotonic() - self._started)
        self._write(f"{MARKS.get(verdict, verdict)}  {self._head} ({took}): {reason}", lasting=True)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._write(text, lasting=True)

    def _write(self, text: str, *, lasting: bool) -> None:
        if self._quiet or not (lasting or self._live):
            return
        if self._live:
            self._stream.write("\r\x1b[2K" + (text if lasting else text[:118]) + ("\n" if lasting else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
