"""The tag of the weights follows what the image and the mounted overlays do to them, and boxes compare it."""

import re
import shutil
from pathlib import Path

import pytest

from core.knob import by_name
from core.plan import differing
from core.registry import registry
from core.settings import resolve
from entrypoint.boot import Boot
from entrypoint.caches import tiers
from entrypoint.stages.plans import trial_plan
from entrypoint.treatment import TAG, planned
from experimental.overlays import ROOM, read_all, snapshot_tag
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


def of_a_box(rooms: tuple[Path, ...], names: str, **environ: str) -> str:
    settings = resolve(registry(), {"GLM53_OVERLAYS": names, **environ})
    return str(planned(settings, environ, rooms)[TAG].value)


def test_the_plan_has_the_tag_of_the_overlays_that_are_mounted(tmp_path: Path) -> None:
    """As in a container: only what is on lies there, and that code is what vLLM runs."""
    mounted = tmp_path / "experimental"
    names = ("nvfp4", "dense_fp8", "topk")
    for name in names:
        shutil.copytree(ROOM / name, mounted / name, ignore=shutil.ignore_patterns("__pycache__"))
    rooms, on = (mounted, ROOM), ",".join(names)
    first = of_a_box(rooms, on)
    assert first == of_a_box((tmp_path / "nowhere", ROOM), on) == of_a_box(rooms, on + ",of_somebody_else")
    assert first == snapshot_tag([overlay for overlay in read_all() if overlay.name in names], {})
    assert first == of_a_box(rooms, on, GLM53_OVERLAY_DENSE_FP8_LM_HEAD="0")
    others = [
        of_a_box(rooms, "topk"),
        of_a_box(rooms, on, GLM53_OVERLAY_DENSE_FP8_LM_HEAD="1"),
        of_a_box(rooms, on, W13_RECONCILE="0"),
    ]
    (mounted / "topk/hook.py").write_text("")  # no weight passes through it
    assert first == of_a_box(rooms, on)
    (mounted / "nvfp4/cut.py").write_text("")  # what dense_fp8 needs
    others.append(of_a_box(rooms, on))
    assert len({first, *others}) == 5


def test_boxes_of_other_code_have_other_plans_and_other_keyed_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolve(registry(), {"TP": "2", "GLM53_OVERLAYS": "dense_fp8", "SPEC_METHOD": "none"})
    mine = trial_plan(Boot({}, tp=2), settings)
    monkeypatch.setattr("image.weights.part", lambda environment: {"code": "of another image"})
    theirs = trial_plan(Boot({}, tp=2), settings)
    assert list(differing(mine.comparable()["values"], theirs.comparable()["values"])) == [TAG]
    assert mine.hash() != theirs.hash()
    before, after = (tiers(plan, "0.32.0", "aarch64") for plan in (mine, theirs))
    assert (before.shared == after.shared, before.keyed == after.keyed) == (True, False)
