"""What is odd in compose/.env is said with its line, and nothing of it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.refusal import Refusal
from core.registry import registry
from launcher.dotenv import entries, parse
from launcher.remarks import remarks
from tests.main.commands.conftest import Kit


def said(text: str) -> tuple[str, ...]:
    return remarks(entries(text, {}), registry())


def test_a_clean_file_has_nothing_to_say() -> None:
    text = "# mine\nTP=2\nLIMIT_MM={\"image\":4}\nSERVED_NAME='my model'\nKV_CACHE_MEMORY=20GiB # tried\nEXTRA_ARGS=\n"
    assert said(text) == ()


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("TP=2\nTP=3\n", 1, "TP is set again in line 2, 2 here and 3 there"),
        ("TP=2\n\nTP=2\n", 1, "the same"),
        ('TP="2"\n', 1, "quotes around TP are not needed"),
        ("\nTP='2'\n", 2, "quotes around TP"),
        ("SERVED_NAME=glm\"\n", 1, "ends with a quote"),
        ("SERVED_NAME='glm '\n", 1, "blanks at an end"),
        ("TP=2  \n", 1, "blanks after the value of TP"),
        ("TP=4\n", 1, "TP repeats the default"),
        ("FABRIC_CHECK_BYTES=256MiB\n", 1, "repeats the default"),
        ("GPU_MEM_UTIL=0.880\n", 1, "repeats the default"),
    ],
)  # fmt: skip
def test_each_oddity_has_its_line(text: str, line: int, told: str) -> None:
    (found,) = said(text)
    assert found.startswith(f"compose/.env, line {line}: ")
    assert told in found


def test_secrets_stay_secret() -> None:
    (found,) = said("API_KEY=hunter2\nAPI_KEY=hunter3\n")
    assert "hunter" not in found
    (found,) = said("API_KYE=hunter2\nAPI_KYE=hunter3\n")
    assert "hunter" not in found


@given(st.text("TP=2: \n\t'\"#$\\{}-é", max_size=60))
def test_any_file_has_remarks_or_none(text: str) -> None:
    try:
        found = entries(text, {})
    except Refusal:
        return
    assert all(line.startswith("compose/.env, line ") for line in remarks(found, registry()))
    assert parse(text, {}) == {entry.name: entry.value for entry in found}


def test_up_says_them_and_logs_does_not(kit: Kit, model: dict[str, str]) -> None:
    (kit.root / "compose/.env").write_text("TP=4\nTP=4\n")
    assert "line 1: TP is set again" in kit.run("up", "-d", shell=model).stderr
    assert kit.run("ps", shell=model).stderr == ""


def test_a_switch_of_0_leaves_its_overlay_out(kit: Kit, model: dict[str, str]) -> None:
    (kit.root / "compose/.env").write_text("GLM53_OVERLAY_HEAD_GATE=0\n")
    assert kit.run("up", "-d", shell=model).returncode == 0
    call = kit.last()
    assert "head_gate" not in call["environ"]["GLM53_OVERLAYS"]
    assert not [word for word in call["words"] if "head_gate.yaml" in word]
