"""The hooks on real vLLM trees, as published and with the image's patches.

They import, register and dispatch by token count with a stubbed device, and refuse a base they do not fit by name.
"""

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

from experimental.overlays import ROOM, read_all
from experimental.plugin import OverlayDoesNotFit, check
from lab.vllm import patched as patched_tree
from lab.vllm import tree

ROOT = Path(__file__).resolve().parents[3]
HOOKED = tuple(overlay.name for overlay in read_all() if overlay.hooks)
VERSIONS = ("0.31.0", "0.32.0")
TREES = [(version, patched) for version in VERSIONS for patched in (False, True)]
NAMED = [f"{version}{' patched' if patched else ''}" for version, patched in TREES]


def based(version: str, *, patched: bool) -> Path:
    """A tree as published, or with all of the image's patches."""
    return patched_tree(version) if patched else tree(version)


@cache
def said(script_name: str, version: str, *, patched: bool) -> Any:
    """What a script of this folder said inside a tree."""
    path = f"{based(version, patched=patched)}:{ROOT}"
    environment = {**os.environ, "PYTHONPATH": path, "VLLM_LOGGING_LEVEL": "ERROR"}
    environment.pop("TRITON_INTERPRET", None)
    script = Path(__file__).parent / script_name
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=environment, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("SAID "))


@pytest.fixture(params=VERSIONS)
def hooked(request: pytest.FixtureRequest) -> Any:
    """hooked.py in a patched tree: the overlays of linear layers and experts."""
    return said("hooked.py", request.param, patched=True)


@pytest.fixture(params=TREES, ids=NAMED)
def driven(request: pytest.FixtureRequest) -> Any:
    """driven.py in a tree, published and patched: the other overlays."""
    version, patched = request.param
    return said("driven.py", version, patched=patched)


def test_layers_are_chosen_by_name_and_size(hooked: Any) -> None:
    assert hooked["methods"] == {
        "o_proj": "W4Method",
        "qkv": "Fp8Method",
        "gate": "UnquantizedLinearMethod",
        "odd": "UnquantizedLinearMethod",
    }
    assert hooked["fp8 error"] < 0.04


def test_dense_layers_dispatch_by_token_count(hooked: Any) -> None:
    assert hooked["dense"] == {
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


@pytest.mark.parametrize(("version", "patched"), TREES[1:], ids=NAMED[1:])
def test_experts_globals_fit_their_block_scales(version: str, patched: bool) -> None:
    """The image's patch gives gate and up one global and rewrites block scales: ours must go with those."""
    seen = said("hooked.py", version, patched=patched)
    assert seen["globals"] == {"gate": [2.0 if patched else 1.0] * 4, "up": [2.0] * 4, "down": [5.0] * 4}
    assert seen["whole scales"] == {"gate": 1.0, "up": 2.0}


def test_experts_dispatch_by_token_count_and_backend(hooked: Any) -> None:
    ours = ["shared MK_INTERNAL_OVERLAPPED", "ours limit=10.0 scaling=1.0"]
    assert hooked["moe"] == {
        "1": ours,
        "16": ours,
        "17": ["stock"],
        "backend": ["stock"],
        "expert parallel": ["stock"],
        "activation": ["stock"],
    }


def test_the_layout_is_the_one_vllm_makes(hooked: Any) -> None:
    assert hooked["swizzle is vLLM's"]
    assert hooked["row order is vLLM's"]


def test_sparse_mla_runs_in_the_backends_own_class_without_the_planner(driven: Any) -> None:
    seen = driven["sparse_mla"]
    # The interpreter truncates to bf16 where a GPU rounds: up to 2^-8 on top of the bound.
    assert seen["error"] < 5e-3 + 2**-8
    assert not seen["planner's buffers"]
    assert seen["build"] == [True]
    assert seen["build of a layer with 65 heads"] == [True, "planned"]
    assert seen["another cache"] == ["stock attention"]


def test_pools_are_the_stable_sorts_through_the_whole_indexer(driven: Any) -> None:
    """By the overlay in a published tree, by the patch in a patched one, where the overlay stands back."""
    seen = driven["topk"]
    assert (seen["prefill"], seen["decode"]) == (True, True)
    assert (seen["prefill asked"], seen["decode asked"]) == (["prefill asked for 48"], ["decode asked for 48"])
    assert seen["another backend"] == ["stock torch"]
    assert seen["switched off"] == [f"prefill asked for {16 if seen['patched'] else 48}"]


def test_the_head_gate_is_ours_and_needs_no_fp32_copy(driven: Any) -> None:
    assert driven["head_gate"]["ran"] == ["reached"]
    assert driven["head_gate"]["error"] < 1e-6
    assert driven["head_gate"]["no fp32 copy"]


def test_prefills_take_the_grouped_convolution(driven: Any) -> None:
    assert driven["conv"] == {"prefill": ["grouped (24, 4) in 3"], "decode": ["stock update"]}


def test_mhc_dispatches_by_token_count_and_by_what_bf16_holds(driven: Any) -> None:
    seen = driven["mhc"]
    assert seen["hc_attn_fn 3"] == []  # ours
    assert seen["error"] < 1e-6
    assert seen["residual error"] < 2**-8
    assert seen["hc_ffn_fn 3"] == ["stock fused"]
    assert seen["hc_attn_fn 33"] == ["stock post", "stock product"]
    assert seen["warm-up"] == ["warmed up"]
    assert seen["left"] == ["layer.hc_ffn_fn stays fp32: bf16 does not hold 12141 of 12288 values"]


def _add_a_statement(file: Path, function: str) -> None:
    """Change what a function, method or class does by one statement before its last."""
    source = file.read_text()
    found: Any = ast.parse(source)
    for part in function.split("."):
        (found,) = [node for node in found.body if getattr(node, "name", None) == part]
    lines = source.splitlines(keepends=True)
    last = found.body[-1]
    at = min(node.lineno for node in (last, *getattr(last, "decorator_list", ()))) - 1
    lines.insert(at, " " * last.col_offset + "changed = True\n")
    file.write_text("".join(lines))


def overlay(name: str) -> Any:
    return tomllib.loads((ROOM / name / "overlay.toml").read_text())


@pytest.mark.parametrize("name", ["moe_decode", "sparse_mla", "topk", "head_gate", "mhc"])
def test_an_older_base_without_the_hooked_functions_is_refused_by_name(name: str) -> None:
    with pytest.raises(OverlayDoesNotFit, match=rf"overlay {name} does not fit this vLLM.*--without {name}"):
        check(overlay(name), tree("0.30.0"))


@pytest.mark.parametrize("name", HOOKED)
def test_a_base_whose_hooked_function_changed_is_refused_by_name(name: str, tmp_path: Path) -> None:
    data = overlay(name)
    for version, patched in TREES:
        check(data, based(version, patched=patched))
    for hook in data["hook"]:
        copy = tmp_path / hook["file"]
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((tree("0.32.0") / hook["file"]).read_text())
    check(data, tmp_path)
    _add_a_statement(tmp_path / data["hook"][0]["file"], data["hook"][0]["function"])
    with pytest.raises(OverlayDoesNotFit, match=rf"overlay {name} does not fit this vLLM.*unknown.*--without {name}"):
        check(data, tmp_path)
