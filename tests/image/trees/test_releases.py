"""Every patch on every published tree: the declared state, applied, applied again, removed, byte for byte as before."""

import compileall
import time
from pathlib import Path

import pytest

from image import bases
from image.patches import PATCHES
from image.patching import Tree, changes, check, write
from image.verify_base import overlay_fit
from tests.image.published import (
    FLASHINFER,
    VLLM,
    apply,
    contents,
    copy_of,
    files_of_patches,
    flashinfer_tree,
    vllm_tree,
)

# What the fact sheet found by reading, where it has an entry. Differences are explained in notes/image.md.
NEEDED = {
    "0.30.0": {"fp8-kv-plan-dtype", "aux-hidden-states", "draft-kv-groups", "routed-experts-index", "kpool-tail-ring"},
    "0.31.0": {"fp8-kv-plan-dtype", "aux-hidden-states", "draft-kv-groups"},
    "0.32.0": set[str](),
    "0.33.0": set[str](),
}
FIXED_SOMEWHERE = NEEDED["0.30.0"]
# Overlays that hook what a release has not, or has in other words; bases.toml warns of those of a base.
UNFIT = {
    "0.30.0": {"moe_decode", "sparse_mla", "topk", "head_gate", "causal_conv", "mhc"},
    "0.31.0": set[str](),
    "0.32.0": set[str](),
    "0.33.0": {"topk", "causal_conv", "mhc"},
}


@pytest.mark.parametrize("version", VLLM)
def test_table_of_a_release(version: str) -> None:
    report = check(Tree(vllm_tree(version)), PATCHES)
    for verdict in report.verdicts:
        if verdict.patch.package != "vllm":
            assert verdict.state == "unverifiable here"
            continue
        needed = verdict.patch.name in NEEDED[version] or verdict.patch.name not in FIXED_SOMEWHERE
        assert verdict.state == ("needed" if needed else "fixed upstream"), (verdict.patch.name, verdict.reasons)
        assert verdict.declared == verdict.state


@pytest.mark.parametrize("version", VLLM)
def test_overlays_of_a_release(version: str) -> None:
    fit = overlay_fit(vllm_tree(version))
    assert {name for name, reasons in fit.items() if reasons} == UNFIT[version]
    for base in bases.load().table.values():
        if base.vllm == version and base.proven != "reported":
            assert all(name in base.note for name in UNFIT[version]), base.name


@pytest.mark.parametrize("version", FLASHINFER)
def test_table_of_a_flashinfer(version: str) -> None:
    report = check(Tree(flashinfer_tree(version)), PATCHES)
    states = {verdict.patch.name: verdict.state for verdict in report.verdicts if verdict.patch.package == "flashinfer"}
    assert states == {"sm121-fp8-tile": "needed", "sm121-fp8-gate": "needed"}


def test_a_check_takes_less_than_three_seconds() -> None:
    for version in VLLM:
        started = time.process_time()
        check(Tree(vllm_tree(version)), PATCHES)
        assert time.process_time() - started < 3


@pytest.mark.parametrize("version", [*VLLM, *(f"flashinfer {version}" for version in FLASHINFER)])
def test_apply_twice_and_remove(version: str, tmp_path: Path) -> None:
    name, _, number = version.rpartition(" ")
    folder = copy_of(flashinfer_tree(number) if name else vllm_tree(number), tmp_path)
    before = contents(folder)
    written = apply(folder)
    states = {verdict.state for verdict in check(Tree(folder), PATCHES).verdicts}
    assert states <= {"applied", "fixed upstream", "unverifiable here"}
    patched = contents(folder)
    assert sorted(path for path in patched if patched[path] != before.get(path)) == written

    assert apply(folder) == []
    assert contents(folder) == patched
    assert all(compileall.compile_file(folder / path, quiet=1) for path in written if path.endswith(".py"))

    tree = Tree(folder)
    write(tree, changes(tree, check(tree, PATCHES), remove=True))
    assert contents(folder) == before


def test_one_patch_can_be_removed_alone(tmp_path: Path) -> None:
    """Edits never share lines, so each patch comes out without the others."""
    folder = files_of_patches(vllm_tree("0.31.0"), tmp_path)
    for patch in PATCHES:
        before = contents(folder)
        for remove in (False, True):
            tree = Tree(folder)
            write(tree, changes(tree, check(tree, [patch]), remove=remove))
        assert contents(folder) == before
