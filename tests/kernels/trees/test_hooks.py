"""The hooks on real vLLM trees: they import, register, dispatch by token count, and refuse a base they do not fit."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from experimental.overlays import ROOM
from experimental.plugin import OverlayDoesNotFit, check
from lab.vllm import tree

ROOT = Path(__file__).resolve().parents[3]
HOOKED = ("dense_fp8", "dense_w4", "moe_decode")
VERSIONS = ("0.31.0", "0.32.0")


@cache
def said(version: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": f"{tree(version)}:{ROOT}", "VLLM_LOGGING_LEVEL": "ERROR"}
    environment.pop("TRITON_INTERPRET", None)
    script = Path(__file__).parent / "hooked.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=environment, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("SAID "))


@pytest.mark.parametrize("version", VERSIONS)
def test_layers_are_chosen_by_name_and_size(version: str) -> None:
    methods = said(version)["methods"]
    assert methods == {
        "o_proj": "W4Method",
        "qkv": "Fp8Method",
        "gate": "UnquantizedLinearMethod",
        "odd": "UnquantizedLinearMethod",
    }
    assert said(version)["fp8 error"] < 0.04


@pytest.mark.parametrize("version", VERSIONS)
def test_dense_layers_dispatch_by_token_count(version: str) -> None:
    assert said(version)["dense"] == {
        "o_proj 1": ["w4"],
        "o_proj 32": ["w4"],
        "o_proj 33": ["fp8"],
        "o_proj 64": ["fp8"],
        "o_proj 65": ["large"],
        "qkv 1": ["fp8"],
        "qkv 32": ["fp8"],
        "qkv 33": ["fp8"],
        "qkv 64": ["fp8"],
        "qkv 65": ["large"],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_experts_keep_their_own_globals(version: str) -> None:
    assert said(version)["globals"] == {"gate": [1.0] * 4, "up": [2.0] * 4, "down": [5.0] * 4}


@pytest.mark.parametrize("version", VERSIONS)
def test_experts_dispatch_by_token_count_and_backend(version: str) -> None:
    ours = ["shared MK_INTERNAL_OVERLAPPED", "ours limit=10.0 scaling=1.0"]
    assert said(version)["moe"] == {
        "1": ours,
        "16": ours,
        "17": ["stock"],
        "backend": ["stock"],
        "expert parallel": ["stock"],
        "activation": ["stock"],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_layout_is_the_one_vllm_makes(version: str) -> None:
    assert said(version)["swizzle is vLLM's"]
    assert said(version)["row order is vLLM's"]


def _add_a_statement(file: Path, function: str) -> None:
    """Change what `Class.name` does by one statement before its last."""
    owner, name = function.split(".")
    source = file.read_text()
    (body,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == owner]
    (found,) = [node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == name]
    lines = source.splitlines(keepends=True)
    at = found.body[-1].lineno - 1
    lines.insert(at, " " * found.body[-1].col_offset + "changed = True\n")
    file.write_text("".join(lines))


def overlay(name: str) -> Any:
    return tomllib.loads((ROOM / name / "overlay.toml").read_text())


def test_an_older_base_without_the_hooked_functions_is_refused_by_name() -> None:
    with pytest.raises(OverlayDoesNotFit, match=r"overlay moe_decode does not fit this vLLM.*--without moe_decode"):
        check(overlay("moe_decode"), tree("0.30.0"))


@pytest.mark.parametrize("name", HOOKED)
def test_a_base_whose_hooked_function_changed_is_refused_by_name(name: str, tmp_path: Path) -> None:
    data = overlay(name)
    for version in VERSIONS:
        check(data, tree(version))
    for hook in data["hook"]:
        copy = tmp_path / hook["file"]
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((tree("0.32.0") / hook["file"]).read_text())
    check(data, tmp_path)
    _add_a_statement(tmp_path / data["hook"][0]["file"], data["hook"][0]["function"])
    with pytest.raises(OverlayDoesNotFit, match=rf"overlay {name} does not fit this vLLM.*unknown.*--without {name}"):
        check(data, tmp_path)
