"""Who comes from the original recipe finds each of its variables: as a knob, or with what to do instead."""

import re
from pathlib import Path

import pytest

from core.elsewhere import ELSEWHERE, elsewhere
from core.lint import unknown, without_effect
from core.registry import registry
from experimental.overlays import read_all, variables
from launcher.generate import knobs_md

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "tests" / "fixtures" / "original_knobs.txt"
NAMES = [word for line in FILE.read_text().splitlines() if not line.startswith("#") for word in line.split()]


def test_the_list_names_each_variable_once() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert len(NAMES) > 170


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_of_the_original_is_a_knob_or_explained_by_the_check_of_dotenv(name: str) -> None:
    if name in registry():
        assert unknown([name], registry()) == ()
        return
    (told,) = unknown([name], registry())
    line = elsewhere(name)
    assert line is not None
    assert told.cure.lower().startswith(line.cure.lower()), "the refusal says what to do instead"


def test_what_a_line_says_to_set_exists() -> None:
    """Capital words of a cure are knobs, overlays' settings or the line's own subject."""
    known = {*registry(), *variables(read_all(ROOT / "experimental")), "BASE", "TAG"}
    for line in ELSEWHERE:
        for word in re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b(?:set|to) ([A-Z]{2,})\b", line.cure):
            assert not word or word in known, (line.name, word)
        for word in re.findall(r"\bset ([A-Z][A-Z0-9_]+)", line.cure):
            assert word in known, (line.name, word)


def test_no_line_hides_behind_an_earlier_one() -> None:
    for place, line in enumerate(ELSEWHERE):
        assert not any(before.covers(line.name.rstrip("*")) for before in ELSEWHERE[:place]), line.name


def test_a_catch_all_does_not_hide_a_typo() -> None:
    (told,) = unknown(["NCCL_DEBUGG"], registry())
    assert "NCCL_DEBUG, one letter away" in told.expected
    (told,) = unknown(["VLLM_SOMETHING_OF_ITS_OWN"], registry())
    assert "-f my.yaml" in told.cure


def test_in_the_container_a_switch_without_effect_is_refused_and_the_engines_own_variables_are_not() -> None:
    told = without_effect(
        {"VLLM_DENSE_FP8": "1", "VLLM_ARX_RING": "0", "VLLM_MEGAMOE": "", "VLLM_LOGGING_LEVEL": "DEBUG", "PATH": "/bin",
         "VLLM_CACHE_ROOT": "/x", "PORT": "1", "MENTAT_GROUP": "x", "VLLM_ADAPTIVE_K_MODEL": "1,1,1"}, registry(),
    )  # fmt: skip
    assert [refusal.setting for refusal in told] == ["VLLM_ARX_RING", "VLLM_DENSE_FP8"]
    assert "GLM53_OVERLAY_DENSE_FP8" in told[1].cure


def test_knobs_md_lists_them() -> None:
    text = knobs_md({})
    assert "`VLLM_DENSE_FP8`" in text
    assert "`MENTAT_GROUP`" in text
