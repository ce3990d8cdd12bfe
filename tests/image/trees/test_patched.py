"""Whole patched trees: made beside the stock one, they compile, and real vLLM serves from them."""

import compileall
import os
import uuid
from pathlib import Path

import pytest

from core.refusal import Refusal
from image.patches import PATCHES
from image.patching import Tree, check
from lab import cluster, vllm, watch
from launcher.verbs import lab as verb

BASES = ("0.31.0", "0.32.0")


@pytest.mark.parametrize("version", BASES)
def test_a_patched_tree_lies_beside_the_stock_one(version: str) -> None:
    stock, patched = vllm.tree(version), vllm.patched(version)
    assert vllm.patched(version) == patched
    states = {verdict.patch.name: verdict.state for verdict in check(Tree(stock), PATCHES).verdicts}
    wanted = {name: "applied" if state == "needed" else state for name, state in states.items()}
    assert {verdict.patch.name: verdict.state for verdict in check(Tree(patched), PATCHES).verdicts} == wanted
    assert "needed" in states.values()


def test_containers_take_no_tree_of_another_release() -> None:
    with pytest.raises(Refusal, match="--provider docker"):
        verb.run(["up", "--vllm", "0.31.0", "--provider", "docker"])
    with pytest.raises(Refusal, match=r"one of 0\.30\.0"):
        verb.run(["up", "--vllm", "0.1"])


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", BASES)
def test_every_file_compiles(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.pycache_prefix", str(tmp_path))
    assert compileall.compile_dir(vllm.patched(version), quiet=1, workers=os.cpu_count() or 1)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", BASES)
def test_two_boxes_serve_from_it(version: str) -> None:
    tree = vllm.patched(version)
    name = f"patched-{uuid.uuid4().hex[:4]}"
    lab, held = cluster.create(name, 2, {}, tree=str(tree))
    try:
        with held:
            cluster.start_all(lab, held, [], print)
        watch.until_all_healthy(lab, 480, print)
        for box in lab.boxes:
            assert watch.ask(lab, box, "Say something.", 120)[0]
        logs = "".join(file.read_text(errors="replace") for file in lab.boxes[0].path.glob("logs/**/*.log*"))
        assert f"version {version}" in logs
        assert str(tree) in logs
    finally:
        cluster.down(lab, grace_s=20)
