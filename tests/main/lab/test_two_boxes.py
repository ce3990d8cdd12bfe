"""One cluster of two boxes, from its first moment to its last, as a user and a fault would meet it.

The tests run in order and share the cluster: starting real vLLM is what takes the time.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cluster, processes, state, watch
from lab.providers import process
from lab.state import Lab
from tests.main.lab.clusters import Answer, a_lab, ask_meanwhile, serves, serves_again

pytestmark = pytest.mark.timeout(900)
NAME = "test-two"


@pytest.fixture(scope="module")
def shared_memory() -> set[Path]:
    return set(Path("/dev/shm").iterdir())


@pytest.fixture(scope="module")
def lab(engine: None, shared_memory: set[Path]) -> Iterator[Lab]:
    """Box 2 first; the later head five seconds after it."""
    with a_lab(NAME, 2, at_s=(5.0, 0.0)) as lab:
        yield lab


@pytest.fixture(scope="module")
def early(lab: Lab) -> Answer:
    """A question asked while nothing serves yet."""
    return ask_meanwhile(lab, lab.boxes[1], 480)


def head_and_worker(lab: Lab) -> tuple[str, str]:
    roles = {}
    for box in lab.boxes:
        page = watch.status(lab, box)
        assert page is not None
        roles[page["box"]["role"]] = box.name
    return roles["head"], roles["worker"]


def test_it_serves_whatever_the_order_of_starts(lab: Lab, early: Answer) -> None:
    serves(lab)
    assert head_and_worker(lab) == ("box1", "box2"), "the lowest address is head, whoever came first"


def test_a_request_sent_while_booting_is_held_and_answered(early: Answer) -> None:
    answer = early.wait(30)
    assert answer.text, answer.error
    assert answer.seconds > 5, "it was asked long before anything served"


def test_any_box_is_the_endpoint(lab: Lab) -> None:
    answers = {watch.ask(lab, box, "Say something.", 60)[0] for box in lab.boxes}
    assert len(answers) == 1, "one engine, temperature 0"


def test_random_weights_fail_the_self_test_as_expected(lab: Lab) -> None:
    page = watch.status(lab, lab.boxes[0])
    assert page is not None
    assert page["selftest"]["verdict"] == "failed-as-expected"
    assert watch.get(lab.boxes[0].address, lab.status_port, "/healthz", 5) is not None


def test_both_boxes_show_one_plan_and_one_generation(lab: Lab) -> None:
    pages = [watch.status(lab, box) for box in lab.boxes]
    assert len({json.dumps([page["plan"]["hash"], page["generation"]]) for page in pages if page}) == 1


def test_a_killed_worker_engine_is_followed_by_a_new_generation(lab: Lab) -> None:
    before = watch.status(lab, lab.boxes[0])
    assert processes.send(process.find(lab, lab.box("box2"), "engine"), signal.SIGKILL) >= 2
    serves_again(lab)
    after = watch.status(lab, lab.boxes[0])
    assert before is not None
    assert after is not None
    assert after["generation"]["epoch"] > before["generation"]["epoch"]
    assert watch.ask(lab, lab.boxes[1], "Say something.", 60)[0]


def test_a_killed_head_kit_comes_back_and_serves(lab: Lab) -> None:
    """As `docker kill` of the head's container with its restart policy; asked meanwhile, the door holds or ends."""
    assert processes.send(process.find(lab, lab.box("box1"), "kit"), signal.SIGKILL) == 1
    serves_again(lab)
    assert process.kept(lab.box("box1")).restarts == 1
    assert watch.ask(lab, lab.boxes[1], "Say something.", 60)[0]


def test_down_leaves_nothing(lab: Lab, shared_memory: set[Path]) -> None:
    assert cluster.down(lab) == [], "every box ended by itself"
    titles = [p.title for p in processes.everything().values()]
    assert [title for title in titles if NAME in title or lab.boxes[0].address in title] == []
    assert not any(box.path.exists() for box in lab.boxes)
    assert not state.file_of(NAME).exists()
    assert set(Path("/dev/shm").iterdir()) - shared_memory == set()
