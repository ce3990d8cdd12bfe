"""A changed setting: no two plans serve at once, and the next start says once what changed."""

from __future__ import annotations

from pathlib import Path

from tests.main.kits.boxes import boxes, serving, until


def test_a_setting_changed_box_by_box_is_named_until_all_have_it_then_told_once(tmp_path: Path) -> None:
    with boxes(tmp_path, 2) as made:
        for box in made:
            box.start()
        until(lambda: serving(made) != "", made, 60)
        first = serving(made)
        assert "changed on all boxes" not in made[0].log()
        assert '"shared cold, keyed cold, no autotune on all boxes"' in made[0].log()

        assert made[1].end() == 0  # what `up -d` does to a container whose settings changed
        until(lambda: made[0].status()["box"]["state"] in ("joining", "ready"), made)
        made[1].start(MAX_NUM_SEQS="5")
        until(lambda: "MAX_NUM_SEQS" in str(made[0].status().get("refusals")), made)
        until(lambda: "MAX_NUM_SEQS" in str(made[1].status().get("refusals")), made)
        assert serving(made) == ""

        made[0].end()
        made[0].start(MAX_NUM_SEQS="5")
        until(lambda: serving(made) not in ("", first), made, 60)
        for box in made:
            assert box.log().count("changed on all boxes since it last served: MAX_NUM_SEQS: ") == 1
            assert " -> 5" in box.log()
            assert '"shared warm, keyed cold, no autotune on all boxes"' in box.log()

        second = serving(made)
        for box in made:
            box.end()
        for box in made:
            box.start(MAX_NUM_SEQS="5", HEAD_HOST=made[1].lan)
        until(lambda: serving(made) not in ("", second), made, 60)
        for was, box in enumerate(made):
            assert f"this box is rank {1 - was} now, it was {was} of 2" in box.log()
            assert '"shared warm, keyed warm, no autotune on all boxes"' in box.log()
