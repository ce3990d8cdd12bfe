"""What a member keeps across restarts, in STATE_DIR: the epoch (and, later, retry counts and boot id)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from core.refusal import Refusal


class Store:
    """One small JSON file, replaced whole and synced, so that a power cut leaves the old or the new one."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None keeps all in memory: for a box that refuses its STATE_DIR and only shows that."""
        self.values: dict[str, int] = {}
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
        return self.values.get("epoch", 0)

    def keep_epoch(self, epoch: int) -> None:
        """Store `epoch` if it is higher, and return only when it is on the disk. Raises OSError."""
        if epoch > self.epoch:
            self._write({**self.values, "epoch": epoch})

    def _read(self) -> dict[str, int]:
        assert self.file is not None
        try:
            data = json.loads(self.file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            self.file.replace(self.file.with_suffix(".unreadable"))
            return {}
        if not isinstance(data, dict):
            return {}
        return {key: value for key, value in data.items() if type(value) is int and value >= 0}

    def _write(self, values: dict[str, int]) -> None:
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
