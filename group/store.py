"""What a member keeps across restarts, in STATE_DIR: epoch, counts of tries, boot id, whether an engine was up."""

from __future__ import annotations

import json
import os
from pathlib import Path

from core.refusal import Refusal
from group.view import HIGHEST_EPOCH


class Store:
    """One small JSON file, replaced whole and synced, so that a power cut leaves the old or the new one."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None keeps all in memory: for a box that refuses its STATE_DIR and only shows that."""
        self.values: dict[str, int | str] = {}
        self.file = folder / "group.json" if folder is not None else None
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.values = self._read()
            self._write(self.values)
        except OSError as error:
            raise Refusal(
                "STATE_DIR",
                f"{folder}: {error.strerror}",
                "a folder that can be written",
                "Mount a writable volume there, or set STATE_DIR in compose/.env.",
            ) from None

    @property
    def epoch(self) -> int:
        """The highest epoch stored here; 0 at first. A lost file is harmless: the others have seen it too."""
        return self.count("epoch")

    def count(self, name: str) -> int:
        """A stored number, 0 at first."""
        value = self.values.get(name)
        return value if isinstance(value, int) and value <= HIGHEST_EPOCH else 0

    def text(self, name: str) -> str:
        """A stored text, "" at first."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def keep(self, **values: int | str) -> None:
        """Store these; returns when they are on the disk. Raises OSError."""
        if any(self.values.get(name) != value for name, value in values.items()):
            self._write({**self.values, **values})

    def keep_epoch(self, epoch: int) -> None:
        """Store `epoch` if it is higher, and return only when it is on the disk. Raises OSError."""
        if epoch > self.epoch:
            self._write({**self.values, "epoch": epoch})

    def _read(self) -> dict[str, int | str]:
        assert self.file is not None
        try:
            data = json.loads(self.file.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            self.file.replace(self.file.with_suffix(".unreadable"))
            return {}
        if not isinstance(data, dict):
            return {}
        return {
            key: value for key, value in data.items() if isinstance(value, str) or (type(value) is int and value >= 0)
        }

    def _write(self, values: dict[str, int | str]) -> None:
        if self.file is None:
            self.values = values
            return
        fresh = self.file.with_suffix(".new")
        with fresh.open("w") as out:
            json.dump(values, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self.file)
        folder = os.open(self.file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.values = values
