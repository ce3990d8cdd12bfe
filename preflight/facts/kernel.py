"""What the kernel says while the kit runs: /dev/kmsg from now on, where the container may read it."""

from __future__ import annotations

import os
import re
from pathlib import Path

RECORD = 8192
MOST = 500  # lines of one look

# What a line is about -> pattern. The driver says the first when unified memory is used up; the box hangs soon after.
ALARMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "the GPU driver is out of memory",
        re.compile(r"NVRM:.*(out of memory|NV_ERR_NO_MEMORY|NV_ERR_INSUFFICIENT)", re.IGNORECASE),
    ),
    ("the kernel ended a process for want of memory", re.compile(r"oom-kill:|Out of memory: Killed process")),
    ("the GPU reports a fault", re.compile(r"NVRM: Xid ")),
)


def alarm(line: str) -> str:
    """What an alarming line is about, or ""."""
    return next((what for what, pattern in ALARMS if pattern.search(line)), "")


class KernelLog:
    """Lines since this was made. `error`: why there are none, "" while it can be read."""

    def __init__(self, path: Path) -> None:
        self.error = ""
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self.error = f"{path}: {error.strerror}"

    def lines(self) -> list[str]:
        """What came since the last call; at most MOST lines, the rest comes with the next."""
        found: list[str] = []
        while self._descriptor >= 0 and len(found) < MOST:
            try:
                record = os.read(self._descriptor, RECORD)
            except BrokenPipeError:
                continue  # lines were overwritten before we came: go on with the oldest there is
            except OSError:
                break  # EAGAIN: read to the end
            if not record:
                break
            found.append(record.decode(errors="replace").partition(";")[2].split("\n")[0])
        return found

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
