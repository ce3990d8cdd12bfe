"""Looking at images: rows of verify_base, files that differ, and one image on all boxes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from core.refusal import Refusal
from core.registry import registry
from core.settings import resolve
from entrypoint.stages import ground
from experimental.overlays import read_all
from image import identity, manifest, sending
from image.inspection import differing
from image.patching import Addition, Edit, Patch, Tree, Variant, changes, check, write
from image.verify_base import answer_of, cuda_rows, overlay_fit, overlay_rows, patch_rows, registry_rows, stray_rows
from launcher.verbs.image import lines

EDIT = Edit("vllm/a.py", "module", "x = 1\n", "x = 2\n")
PATCH = Patch(
    "p", "t", "w", "u", "o", (Variant("v", (EDIT,), (Addition("vllm/glm53_memory.py", "payload/glm53_memory.py"),)),)
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "vllm" / "sub").mkdir(parents=True)
    (tmp_path / "vllm" / "a.py").write_text("x = 1\n")
    (tmp_path / "vllm" / "sub" / "b.py").write_text("y = 1\n")
    return tmp_path


def patched(site: Path) -> dict[str, str]:
    """Patch the tree; the manifest of what it was."""
    base = manifest.of(site, ("vllm",))
    tree = Tree(site)
    write(tree, changes(tree, check(tree, [PATCH])))
    return base


def test_base_and_patches_are_no_difference(site: Path) -> None:
    assert differing(Tree(site), patched(site), [PATCH]) == []


def test_every_other_file_is_named(site: Path) -> None:
    base = patched(site)
    (site / "vllm" / "sub" / "b.py").write_text("y = 2\n")
    (site / "vllm" / "a.py").write_text("x = 2\nz = 3\n")
    (site / "vllm" / "new.py").touch()
    assert differing(Tree(site), base, [PATCH]) == [
        "differs: vllm/a.py",
        "differs: vllm/sub/b.py",
        "not from the base: vllm/new.py",
    ]


def test_a_missing_file_is_named(site: Path) -> None:
    base = patched(site)
    (site / "vllm" / "sub" / "b.py").unlink()
    assert differing(Tree(site), base, [PATCH]) == ["missing: vllm/sub/b.py"]


def test_a_manifest_is_read_back(site: Path) -> None:
    table = manifest.of(site, ("vllm",))
    assert manifest.parse(manifest.text(table)) == table
    assert len(manifest.fingerprint(table)) == 16


def test_rows_of_patches(site: Path) -> None:
    (failing, summary) = patch_rows(check(Tree(site), [PATCH]))
    assert (failing.level, failing.seen) == ("FAIL", "needed")
    assert summary.level == "FAIL"
    patched(site)
    (summary,) = patch_rows(check(Tree(site), [PATCH]))
    assert (summary.level, summary.seen) == ("ok", "1 applied")


def test_overlays_that_do_not_fit_are_named_and_are_no_fault_of_the_image(site: Path) -> None:
    """The tree has none of the hooked functions; what hooks nothing fits everywhere."""
    fit = overlay_fit(site)
    assert set(fit) == {overlay.name for overlay in read_all()}
    assert fit["nvfp4"] == []
    assert fit["topk"][0].startswith("vllm/")
    assert fit["topk"][0].endswith(" is absent")
    found = list(overlay_rows(fit))
    assert {row.level for row in found} == {"WARN", "ok"}
    assert ("overlay topk", "Leave it out: ./glm53 --without topk up -d") in [(row.name, row.cure) for row in found]
    assert found[-1].seen == f"{sum(not reasons for reasons in fit.values())} of {len(fit)} fit this base"


def test_a_box_refuses_a_mounted_overlay_that_does_not_fit_its_image(site: Path) -> None:
    """Before anything loads; vLLM's own processes would end over it minutes later."""
    settings = resolve(registry(), {"GLM53_OVERLAYS": "nvfp4,topk"})
    (refusal,) = ground.misfits(settings, site, {})
    assert refusal.setting == "overlay topk"
    assert " is absent" in refusal.seen
    assert "--without topk" in refusal.cure
    assert not list(ground.misfits(settings, site, {"GLM53_OVERLAY_TOPK": "0"}))
    assert not list(ground.misfits(settings, None, {})), "outside an image"


def test_an_image_shows_its_patches_and_which_overlays_fit() -> None:
    record = {"kit": "0.1.0", "versions": {"vllm": "0.32.0"}, "patches": {"spin-wait": "applied"}}
    shown = lines({**record, "overlays": {"nvfp4": [], "topk": ["vllm/a.py: f is absent"]}})
    assert [" ".join(line.split()) for line in shown[-6:]] == [
        "patches",
        "spin-wait applied",
        "overlays",
        "nvfp4 fits",
        "topk does not fit",
        "vllm/a.py: f is absent",
    ]
    assert "older kit" in lines(record)[-1]


def answer(out: str, status: int = 0, error: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess([], status, out, error)


def test_rows_of_parsers_and_models() -> None:
    good = 'noise\nFOUND {"reasoning glm45": "R", "architecture": ""}\n'
    assert [(row.name, row.level) for row in registry_rows(answer_of(answer(good)))] == [
        ("reasoning glm45", "ok"),
        ("architecture", "FAIL"),
    ]
    (row,) = registry_rows(answer_of(answer("", 1, "Traceback\nImportError: no torch\n")))
    assert (row.level, row.seen) == ("FAIL", "ImportError: no torch")


def toolkit(folder: Path, nvcc: str, header: str) -> Path:
    for name, text in {
        "version.json": f'{{"cuda": {{"name": "x", "version": "{nvcc}"}}}}',
        "include/cuda.h": f"#define CUDA_VERSION {header}\n",
        "include/nvrtc.h": "",
        "include/cuda_runtime.h": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_cuda_parts_of_one_version(tmp_path: Path) -> None:
    (row,) = cuda_rows(toolkit(tmp_path / "cuda", "13.0.2", "13000"), tmp_path)
    assert (row.level, row.seen) == ("ok", "toolkit 13.0, nvrtc 13.0")


def test_cuda_parts_that_disagree(tmp_path: Path) -> None:
    (row,) = cuda_rows(toolkit(tmp_path / "cuda", "13.0.2", "12090"), tmp_path)
    assert (row.level, row.seen) == ("FAIL", "toolkit 13.0, nvrtc 12.9")


def test_no_cuda_at_all_is_said_not_failed(tmp_path: Path) -> None:
    (row,) = cuda_rows(tmp_path / "none", tmp_path)
    assert row.level == "info"


def test_strays(site: Path, tmp_path: Path) -> None:
    (row,) = stray_rows(site, tmp_path)
    assert row.level == "ok"
    (site / "vllm" / "a.py.rej").touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nccl.conf").touch()
    (row,) = stray_rows(site, tmp_path)
    assert row.level == "FAIL"
    assert "/etc/nccl.conf" in row.seen
    assert "a.py.rej" in row.seen


# --- one image on all boxes: docker and ssh replaced by scripts, a box is a folder ------------------------------

DOCKER = """#!/bin/sh
case "$1" in
  save) [ -f "$BOX/id" ] && cat "$BOX/id" ;;
  load) cat > "$BOX/id"; [ -z "$SPOIL" ] || sed -i s/mine/other/ "$BOX/id" ;;
  image) [ -f "$BOX/id" ] && cat "$BOX/id" || { echo "No such image" >&2; exit 1; } ;;
esac
"""
SAYS = {"Id": "sha256:x", "Os": "linux", "Architecture": "arm64", "Config": {}, "RootFS": {"Layers": ["sha256:mine"]}}
MINE = json.dumps([SAYS])
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
[ -d "$BOXES/$host" ] || { echo "ssh: connect to host $host: timed out" >&2; exit 255; }
BOX="$BOXES/$host" exec sh -c "$*"
"""


@pytest.fixture
def boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"docker": DOCKER, "ssh": SSH}.items():
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        script.chmod(0o755)
    for name in ("here", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "id").write_text(MINE)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("BOX", str(tmp_path / "here"))
    monkeypatch.setenv("BOXES", str(tmp_path))
    return tmp_path


def test_sending_compares_ids_and_skips_who_has_it(boxes: Path) -> None:
    (boxes / "two" / "id").write_text(MINE)
    said: list[str] = []
    results = sending.send("glm53:local", ["one", "two", "three"], said.append)
    assert [(result.host, result.state) for result in results] == [
        ("one", "sent"),
        ("two", "there"),
        ("three", "failed"),
    ]
    assert (boxes / "one" / "id").read_text() == MINE
    assert "timed out" in results[2].detail


def test_another_id_after_loading_is_a_failure(boxes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOIL", "1")
    (result,) = sending.send("glm53:local", ["one"], lambda line: None)
    assert result.state == "failed"
    there, here = identity.image_id(MINE.replace("mine", "other")), identity.image_id(MINE)
    assert result.detail == f"has {there} after loading, here it is {here}"


def test_without_the_image_nothing_is_sent(boxes: Path) -> None:
    (boxes / "here" / "id").unlink()
    (result,) = sending.send("glm53:local", ["one"], lambda line: None)
    assert result.state == "failed"
    assert "no such image here" in result.detail


def test_a_host_is_never_an_option_of_ssh(boxes: Path) -> None:
    with pytest.raises(Refusal, match="a host name"):
        sending.send("glm53:local", ["-oProxyCommand=touch x"], lambda line: None)
