"""Real kit processes on loopback addresses, each with folders of its own and the fake engine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
ENGINE = Path(__file__).with_name("fake_engine.py")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Box:
    """One box: `start()` and `end()` as often as wanted; its state folder stays."""

    def __init__(self, folder: Path, lan: str, settings: dict[str, str]) -> None:
        self.folder, self.lan, self.settings = folder, lan, settings
        self.process: subprocess.Popen[bytes] | None = None
        model = folder / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")

    def start(self, **changes: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ENGINE_PROFILE": "lab-cpu",
            "ENGINE_PYTHON": str(ENGINE),
            "LAN_ADDRESS": self.lan,
            "STATUS_BIND": self.lan,
            "FABRIC_CHECK": "0",
            "SELF_TEST": "0",
            "MODEL_DIR": str(self.folder / "model"),
            **{name: str(self.folder / name.lower()) for name in ("STATE_DIR", "LOG_DIR", "CACHE_ROOT")},
            **self.settings,
            **changes,
        }
        with (self.folder / "kit.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entrypoint"],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def status(self) -> dict[str, Any]:
        """/status.json, or {} while the page is not up."""
        try:
            with OPENER.open(f"http://{self.lan}:8082/status.json", timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def log(self) -> str:
        return (self.folder / "kit.log").read_text(errors="replace")

    def end(self, number: int = signal.SIGTERM, wait_s: float = 20) -> int:
        """Signal the kit; its exit status."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(wait_s)


@contextlib.contextmanager
def boxes(folder: Path, count: int, tp: int | None = None, **settings: str) -> Iterator[list[Box]]:
    """`count` boxes at 127.x.y.11 and up, not started; whatever still runs is killed at the end."""
    common = {"TP": str(tp or count), "GROUP_NAME": f"t-{secrets.token_hex(4)}", **settings}
    block = f"127.{secrets.randbelow(200) + 32}.{secrets.randbelow(250)}"  # so that two runs on one machine never meet
    made = [Box(folder / f"box{i}", f"{block}.{11 + i}", common) for i in range(count)]
    try:
        yield made
    finally:
        for box in made:
            if box.process is not None and box.process.poll() is None:
                box.end(signal.SIGKILL)


def until(holds: Callable[[], bool], made: list[Box], seconds: float = 30) -> None:
    """Wait, and show the boxes' logs when it does not come about."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            logs = "\n".join(f"-- {box.lan}\n{box.log()}" for box in made)
            raise AssertionError(f"not within {seconds:g} s\n{logs}")
        time.sleep(0.05)


def serving(made: list[Box]) -> str:
    """The generation's id once all boxes are healthy in the same one, else ""."""
    seen = [box.status() for box in made]
    ids = {status["generation"]["id"] for status in seen if status.get("healthy") and status["generation"]}
    return ids.pop() if len(ids) == 1 and all(status.get("healthy") for status in seen) else ""


def engines_of(made: list[Box]) -> list[int]:
    """Pids of everything that carries the mark of one of these boxes."""
    marks = tuple(f"GLM53_BOX={box.lan}".encode() for box in made)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(mark in (entry / "environ").read_bytes().split(b"\0") for mark in marks):
                    found.append(int(entry.name))
    return found
