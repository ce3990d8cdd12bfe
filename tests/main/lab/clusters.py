"""Clusters of real vLLM for the tests here. They live in .lab/ of the clone, each under a name of its own."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from core.refusal import Refusal
from lab import cluster, state, watch
from lab.processes import wait_until
from lab.providers import process
from lab.state import Box, Lab

READY_S = 480.0


@dataclass
class Answer:
    """A question asked from another thread: `text` once it came, `error` when it did not, `seconds` it took."""

    text: str | None = None
    error: str = ""
    seconds: float = 0.0
    thread: threading.Thread | None = None

    def wait(self, deadline_s: float) -> "Answer":
        assert self.thread is not None
        self.thread.join(deadline_s)
        return self


def ask_meanwhile(lab: Lab, box: Box, deadline_s: float) -> Answer:
    """Ask through a box's door and go on; a door that does not listen yet is tried again."""
    answer = Answer(error="still waiting")

    def run() -> None:
        begin = time.monotonic()
        while time.monotonic() - begin < deadline_s:
            try:
                answer.text, answer.seconds = watch.ask(lab, box, "Say something.", deadline_s)
                answer.error = ""
                return
            except Refusal as refusal:
                answer.error = str(refusal)
                if "refused" not in refusal.seen:  # anything but "connection refused" is an answer
                    return
                time.sleep(0.1)

    answer.thread = threading.Thread(target=run, daemon=True)
    answer.thread.start()
    return answer


def serves(lab: Lab, deadline_s: float = READY_S) -> float:
    """Seconds until every box is healthy."""
    return watch.until_all_healthy(lab, deadline_s, print)


def serves_again(lab: Lab, deadline_s: float = READY_S) -> float:
    """Seconds until the damage is seen and every box is healthy after it."""
    begin = time.monotonic()
    assert wait_until(lambda: not all(watch.line(lab, box).healthy for box in lab.boxes), 30), "nobody noticed"
    watch.until_all_healthy(lab, deadline_s, print)
    return time.monotonic() - begin


@contextmanager
def a_lab(name: str, count: int, set_: Mapping[str, str] | None = None, at_s: Sequence[float] = ()) -> Iterator[Lab]:
    """A lab whose boxes start at those seconds; taken down at the end, with its logs printed when a test failed."""
    if state.file_of(name).exists():  # of a run that was killed
        old = state.load(name)
        cluster.stop(old, old.boxes, 1)
        cluster.remove(old)
    lab, held = cluster.create(name, count, set_ or {})
    try:
        with held:
            cluster.start_all(lab, held, at_s, print)
        yield lab
    finally:
        for log in [box.path / "kit.log" for box in lab.boxes]:
            print(f"---- {log.parent.name}\n{log.read_text(errors='replace')[-6000:] if log.exists() else 'gone'}")
        if state.file_of(name).exists():
            cluster.stop(lab, lab.boxes, 25)
            left = process.leftovers(lab)
            cluster.remove(lab)
            assert left == []
