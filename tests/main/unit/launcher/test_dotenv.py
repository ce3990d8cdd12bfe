"""compose/.env is read as Docker Compose reads it: the same text goes through both."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.refusal import Refusal
from launcher.dotenv import parse
from tests.fixtures.compose_v2 import compose_v2

TEXT = r"""
# a comment, and an empty line

PLAIN=plain # tail
export SPACED = spaced
LITERAL='lit $PLAIN "q" # no'
DOLLARS="a\${PLAIN}"
QUOTE='it\'s'
NOT_A_COMMENT= #x
ESCAPED="dq $PLAIN ${NOPE:-def} \n x \"q\" #y"
UNDASHED=un$PLAIN-${PLAIN}
HASH=a#b
DOLLAR=x$$y
LINES="m1
m2"
JSON={"image":16,"video":0}
COLON: colon
UNSET=${NOPE}z
FROM_SHELL=${OUTSIDE}
SHELL_FIRST=${PLAIN2}
PLAIN2=two
EMPTY=
ALONE
LAST=26GiB"""


def test_every_form_reads_as_compose_reads_it(tmp_path: Path) -> None:
    command = compose_v2()
    names = [*parse(TEXT, {}), "ALONE"]
    (tmp_path / "e.env").write_text(TEXT)
    lines = ["services:", "  a:", "    image: b", "    environment:", *(f"      - {name}" for name in names)]
    (tmp_path / "c.yaml").write_text("\n".join(lines))
    shell = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OUTSIDE": "from outside", "PLAIN2": "shell"}
    done = subprocess.run(
        [*command, "-f", str(tmp_path / "c.yaml"), "--env-file", str(tmp_path / "e.env"), "config", "--format", "json"],
        env=shell,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout)["services"]["a"]["environment"]
    ours = {**parse(TEXT, shell), "PLAIN2": "shell"}  # Compose hands the shell's own value on
    assert {name: text.replace("$$", "$") for name, text in theirs.items() if text is not None} == ours


@pytest.mark.parametrize(
    ("text", "line", "seen"),
    [
        ("A=1\nB C=2\n", 2, "B"),
        ('\n\nA="open\n', 3, "not closed"),
        ("=x\n", 1, "nothing before"),
        ("A='x\n", 1, "'"),
        ("A=${\n", 1, "${"),
    ],
)
def test_what_compose_refuses_is_refused_with_its_line(text: str, line: int, seen: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(text, {})
    assert f"line {line}" in refused.value.setting
    assert seen in refused.value.seen


@given(st.text("aB=: \n\t'\"#$\\{}-é", max_size=60))
def test_garbage_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        read = parse(text, {})
    except Refusal as refusal:
        read = {"refused": refusal.setting}
    assert all(isinstance(value, str) for value in read.values())
