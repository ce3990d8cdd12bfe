"""Looking at images: rows of verify_base, files that differ, and one image on all boxes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from core.refusal import Refusal
from core.registry import registry
from core.settings import resolve
from entrypoint.stages import ground
from experimental.overlays import read_all
from image import cuda_parts, identity, manifest, sending
from image.inspection import differing
from image.patching import Addition, Edit, Patch, Tree, Variant, changes, check, write
from image.verify_base import answer_of, overlay_fit, overlay_rows, patch_rows, registry_rows, stray_rows
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


def toolkit(folder: Path, **versions: str) -> Path:
    """The files of a CUDA toolkit that say which it is, as NVIDIA's 13.0 has them."""
    of = {"nvcc": "13.0", "nvvm": "13.0", "runtime": "13000", "nvrtc": "13.0", "crt": "13.0.88", **versions}
    for name, text in {
        "bin/nvcc": f"\x7fELF\0cuda_{of['nvcc']}.r{of['nvcc']}/compiler.36424714_0\0",
        "nvvm/bin/cicc": f"\x7fELF\0cuda_{of['nvvm']}.r{of['nvvm']}/compiler.36424714_0\0",
        "include/cuda_runtime_api.h": f"#define CUDART_VERSION  {of['runtime']}\n",
        "include/nvrtc.h": "",
        "include/cuda_runtime.h": "",
        f"lib64/libnvrtc-builtins.so.{of['nvrtc']}": "",
        f"dist-info/nvidia_cuda_crt-{of['crt']}.dist-info/METADATA": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def cuda(tmp_path: Path, **versions: str) -> list[tuple[str, str]]:
    found = cuda_parts.rows(toolkit(tmp_path / "cuda", **versions), tmp_path / "site", tmp_path)
    return [(row.level, row.seen) for row in found]


def test_cuda_parts_of_one_version(tmp_path: Path) -> None:
    assert cuda(tmp_path) == [("ok", "toolkit nvcc 13.0, nvvm 13.0, runtime 13.0, nvrtc 13.0, crt 13.0")]


OTHER = (("nvcc", "13.1"), ("nvvm", "12.9"), ("runtime", "12090"), ("nvrtc", "13.1"), ("crt", "13.1.5"))


@pytest.mark.parametrize(("part", "version"), OTHER)
def test_each_cuda_part_of_another_version_is_seen(tmp_path: Path, part: str, version: str) -> None:
    ((level, seen),) = cuda(tmp_path, **{part: version})
    assert level == "FAIL"
    assert f"{part} {'12.9' if version == '12090' else version[:4]}" in seen


def test_places_of_different_cuda_warn(tmp_path: Path) -> None:
    """Headers that the toolkit lacks are linked from the packages; torch brings a runtime of its own."""
    site = tmp_path / "site"
    for name in (
        "nvidia_cuda_nvrtc-13.2.51",
        "nvidia_cuda_runtime_cu12-12.9.79",
        "nvidia_nvvm-13.2.1",
        "nvidia_nccl-9.9",
    ):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "torch").mkdir()
    (site / "torch/version.py").write_text("__version__ = '2.11'\ncuda: Optional[str] = '13.0'\n")
    assert cuda_parts.of_packages(site) == {"nvrtc": "13.2", "runtime": "12.9", "nvvm": "13.2"}
    assert cuda_parts.of_torch(site) == {"": "13.0"}
    ((level, seen),) = cuda(tmp_path)
    assert (level, seen.partition("; ")[2]) == (
        "WARN",
        "Python packages nvrtc 13.2, runtime 12.9, nvvm 13.2; torch 13.0",
    )


def test_crt_of_a_debian_package(tmp_path: Path) -> None:
    """As NVIDIA's own images install it; a package list without a toolkit beside it says nothing."""
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text("Package: cuda-crt-13-1\nStatus: x\n\nPackage: zlib1g\n")
    shutil.rmtree(toolkit(tmp_path / "cuda") / "dist-info")
    assert cuda_parts.of_toolkit(tmp_path / "cuda", tmp_path)["crt"] == "13.1"
    assert cuda_parts.of_toolkit(tmp_path / "none", tmp_path) == {}


def test_a_header_that_compilers_look_for_is_missed(tmp_path: Path) -> None:
    (toolkit(tmp_path / "cuda") / "include/nvrtc.h").unlink()
    found = list(cuda_parts.rows(tmp_path / "cuda", tmp_path, tmp_path))
    assert [(row.name, row.level) for row in found] == [("CUDA", "ok"), ("CUDA nvrtc.h", "FAIL")]


def test_no_cuda_at_all_is_said_not_failed(tmp_path: Path) -> None:
    (row,) = cuda_parts.rows(tmp_path / "none", tmp_path, tmp_path)
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
