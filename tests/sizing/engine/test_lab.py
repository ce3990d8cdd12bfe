"""Whole boots in the lab: the engine's own pool beside the prediction, and a padded checkpoint that serves."""

import pytest

from lab import padded, watch
from lab.model import ODD, tiny
from lab.state import Lab
from tests.main.lab.clusters import a_lab, serves

pytestmark = [pytest.mark.full, pytest.mark.timeout(1500)]
QUESTION = "Say something."


def pool_rows(lab: Lab) -> list[dict[str, str]]:
    """The page's rows on the pool, of the box whose engine prints the line."""
    pages = [watch.status(lab, box) for box in lab.boxes]
    (head,) = (page for page in pages if page and page["box"]["role"] == "head")
    return [row for row in head["rows"] if row["name"] == "KV pool"]


@pytest.mark.parametrize(("boxes", "pad"), [(2, False), (4, False), (3, True)])
def test_the_engines_line_equals_the_prediction_on_the_page_and_in_the_log(boxes: int, pad: bool) -> None:
    with a_lab(f"sizing-{boxes}", boxes, padded.knobs(boxes) if pad else {}) as lab:
        serves(lab, 600)
        (row,) = pool_rows(lab)
        assert row["level"] == "ok"
        assert "(+0.0%)" in row["expected"]
        seen, predicted = row["seen"].split()[0], row["expected"].split()[0]
        assert seen == predicted
        logs = [box.path / "kit.log" for box in lab.boxes]
        assert any(f'KV pool level=ok seen="{seen} tokens"' in log.read_text() for log in logs)


def test_three_boxes_serve_a_padded_model_with_the_unpadded_ones_words() -> None:
    """fp32: ranks add their parts in another order, which in bf16 may turn a near tie."""
    wide = {"EXTRA_ARGS": "--dtype float32", "SELF_TEST": "0"}
    with a_lab("sizing-padded", 3, {**padded.knobs(3), **wide}) as lab:
        serves(lab, 600)
        text, _ = watch.ask(lab, lab.boxes[-1], QUESTION, 120)
    with a_lab("sizing-plain", 2, {"MODEL_DIR": str(tiny(ODD)), **wide}) as lab:
        serves(lab, 600)
        assert watch.ask(lab, lab.boxes[-1], QUESTION, 120)[0] == text
    assert len(set(text)) > 4
