"""The engine's log file: the previous run's is kept, a run that grows past its cap begins a new part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

KEPT_LINES = 200
LONGEST_LINE = 64 * 1024


class EngineLog:
    """Bytes in, a file and the last lines out.

    `vllm.log` is this run, `vllm.log.previous` the one before, `vllm.log.part` the last full part of this run.
    A disk that takes no more costs lines, never the engine: `problem` says so.
    """

    def __init__(self, path: Path, max_bytes: int, on_line: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.on_line = on_line
        self.problem = ""
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._rest = b""
        self._file: BinaryIO | None = None
        self._written = 0
        self._open()

    def feed(self, data: bytes) -> None:
        """Write what the engine printed and pass on whole lines (a carriage return ends one too)."""
        self._write(data)
        pieces = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = pieces.pop()
        if len(self._rest) > LONGEST_LINE:
            pieces.append(self._rest)
            self._rest = b""
        for piece in pieces:
            line = piece.decode(errors="replace").rstrip()
            if line:
                self._lines.append(line)
                if self.on_line is not None:
                    self.on_line(line)

    def tail(self, count: int = 50) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)[-count:]

    def close(self) -> None:
        """Pass on an unfinished last line and close the file."""
        if self._rest:
            self.feed(b"\n")
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        try:
            if self.path.exists():
                self.path.replace(self.path.with_name(self.path.name + ".previous"))
            self.path.with_name(self.path.name + ".part").unlink(missing_ok=True)
            self._file = self.path.open("wb", buffering=0)
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}"

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            if self._written + len(data) > self.max_bytes:
                self._file.close()
                self.path.replace(self.path.with_name(self.path.name + ".part"))
                self._file = self.path.open("wb", buffering=0)
                self._written = 0
            self._file.write(data)
            self._written += len(data)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}"


def log_path(folder: str, role: str = "") -> Path:
    """vllm.log, or vllm-head.log and vllm-worker.log where ROLE is set (boxes may share a log folder then)."""
    return Path(folder) / (f"vllm-{role}.log" if role else "vllm.log")
