"""The snapshot tag follows what the image does to weights."""

import re
import shutil
from pathlib import Path

from core.knob import by_name
from experimental.overlays import snapshot_tag
from image.knobs import KNOBS
from image.weights import FILES, PAYLOAD, SETTINGS, part


def tag(**environment: str) -> str:
    return snapshot_tag((), environment)


def test_the_tag_follows_the_reconciling_of_scales() -> None:
    assert tag() == tag(W13_RECONCILE="1") == tag(W13_RECONCILE="") == tag(GLM47_FAIL_CLOSED="0")
    assert tag() != tag(W13_RECONCILE="0")


def test_the_tag_follows_the_code_that_touches_weights(tmp_path: Path) -> None:
    shutil.copytree(PAYLOAD, tmp_path, dirs_exist_ok=True)
    assert part({}, tmp_path) == part({})
    (tmp_path / "glm53_memory.py").write_text("")  # no weight passes through it
    assert part({}, tmp_path) == part({})
    for name in FILES:
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        assert part({}, tmp_path) != part({})
        shutil.copy(PAYLOAD / name, tmp_path / name)


def test_defaults_are_the_knobs_and_what_the_code_reads_is_listed() -> None:
    assert {name: by_name(KNOBS)[name].default for name in SETTINGS} == SETTINGS
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', "".join((PAYLOAD / name).read_text() for name in FILES)))
    assert read == set(SETTINGS)
