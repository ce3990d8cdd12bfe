"""What ./glm53 starts for the user cleans up when ./glm53 is told to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from launcher.ending import Told, attended, cleanly_ended

# Longer than Python's own subprocess.run leaves a child after Ctrl-C before it kills it.
PROGRAM = """
import sys, time
from pathlib import Path
try:
    Path(sys.argv[1], "up").touch()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    Path(sys.argv[1], "clean").touch()
    sys.exit(3)
"""


def tell_when_up(folder: Path, number: signal.Signals) -> threading.Thread:
    def tell() -> None:
        while not (folder / "up").exists():
            threading.Event().wait(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("number", "ignored"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)],
    ids=["Ctrl-C", "TERM", "TERM to a background job"],
)
def test_a_program_is_left_the_time_to_clean_up(tmp_path: Path, number: signal.Signals, ignored: bool) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        with cleanly_ended():
            teller = tell_when_up(tmp_path, number)
            status, early = attended([sys.executable, "-c", PROGRAM, str(tmp_path)], dict(os.environ))
            teller.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "clean").exists()
    assert status == 3
    assert isinstance(early, Told) == (number == signal.SIGTERM)
    assert early is not None


def test_one_that_ends_by_itself_was_not_ended_early() -> None:
    assert attended([sys.executable, "-c", "raise SystemExit(5)"], dict(os.environ)) == (5, None)
