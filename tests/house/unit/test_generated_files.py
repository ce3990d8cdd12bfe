"""KNOBS.md, .env.example and the compose environment follow from the knobs, and a stale one is named."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.knob import Knob
from core.registry import registry
from launcher import generate

ROOT = Path(__file__).resolve().parents[3]

ROOMS = {
    "entrypoint": (
        Knob("TP", "count", "4", "Boxes."),
        Knob("SECRET", "text", None, "A | in a sentence.", secret=True, scope="box"),
        Knob("LOG_DIR", "path", "/logs", "Logs.", scope="box"),
    ),
    "launcher": (Knob("IMAGE", "text", "glm53:local", "The image.", scope="launcher"),),
}


def test_the_generated_files_are_in_step() -> None:
    done = subprocess.run(
        [sys.executable, "glm53", "knobs", "check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_knob_of_the_container_is_passed_on_and_a_launcher_knob_is_not() -> None:
    block = [line.strip() for line in generate.environment_block(ROOMS)]
    assert "- TP" in block
    assert "- IMAGE" not in block


def test_the_path_a_mount_fixes_is_not_the_hosts() -> None:
    assert "      - LOG_DIR=/logs" in generate.environment_block(ROOMS)
    assert "#LOG_DIR=\n" in generate.env_example(ROOMS)


def test_only_the_block_between_the_markers_changes() -> None:
    before = f"a\n{generate.BEGIN}\nold\n{generate.END}\nb\n"
    assert generate.with_block(before, ["new"]) == f"a\n{generate.BEGIN}\nnew\n{generate.END}\nb\n"
    with pytest.raises(AssertionError):
        generate.with_block("no markers\n", [])


def test_a_table_cell_may_hold_a_bar() -> None:
    assert "A \\| in a sentence." in generate.knobs_md(ROOMS)


def test_every_usual_knob_exists() -> None:
    assert [name for name in generate.USUAL if name not in registry()] == []
