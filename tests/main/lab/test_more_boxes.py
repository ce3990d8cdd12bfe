"""Clusters too large for CI: three, four and six boxes, started up to 30 s apart."""

import random

import pytest

from lab import watch
from tests.main.lab.clusters import a_lab, ask_meanwhile, serves

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("count", [3, 4, 6])
def test_it_serves_over(count: int, engine: None) -> None:
    order = random.Random(count)
    with a_lab(f"test-{count}", count, at_s=[order.uniform(0, 30) for _ in range(count)]) as lab:
        early = ask_meanwhile(lab, lab.boxes[-1], 600)
        serves(lab, 600)
        assert early.wait(60).text, early.error
        assert len({watch.ask(lab, box, "Say something.", 60)[0] for box in lab.boxes}) == 1
        pages = [watch.status(lab, box) for box in lab.boxes]
        assert sorted(page["box"]["rank"] for page in pages if page) == list(range(count))
