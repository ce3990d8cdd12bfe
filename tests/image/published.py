"""Published packages as trees to patch: vLLM from the CPU wheels (lab/vllm.py), the rest unpacked here, once."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from image.patches import PATCHES
from image.patching import Tree, changes, check, write
from lab import vllm
from launcher.environments import locked, pip
from launcher.paths import cache

VLLM = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
FLASHINFER = ("0.6.18", "0.7.0", "0.7.1", "0.7.2", "0.7.2.post1")


def vllm_tree(version: str) -> Path:
    """site-packages with vllm/; of 0.33.0 only the Python files, since no CPU wheel of it exists."""
    if version in vllm.TREES:
        return vllm.tree(version)
    return _unpack(f"vllm=={version}", f"vllm-{version}-python", lambda name: name.endswith(".py"))


def flashinfer_tree(version: str) -> Path:
    """site-packages with the files of flashinfer/ that patches name."""
    named = {edit.file for patch in PATCHES for variant in patch.variants for edit in variant.edits}
    named |= {"flashinfer/_build_meta.py", "flashinfer/__init__.py"}
    return _unpack(f"flashinfer-python=={version}", f"flashinfer-{version}", named.__contains__)


def _unpack(requirement: str, folder_name: str, wanted: Callable[[str], bool]) -> Path:
    folder = cache() / "trees" / folder_name
    if not (folder / "COMPLETE").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Under linux/amd64: the Python files are the same on every platform, and amd64 has a wheel of everything.
        options = ("--no-deps", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64")
        with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
            pip(locked("dev"), "download", *options, "-d", downloads, requirement)
            (wheel,) = Path(downloads).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if wanted(name):
                        archive.extract(name, folder)
        (folder / "COMPLETE").touch()
    return folder


def copy_of(tree: Path, target: Path) -> Path:
    """A copy that may be patched; big binaries are linked, since no patch touches one."""
    for source in sorted(tree.rglob("*")):
        place = target / source.relative_to(tree)
        if source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif source.suffix == ".so":
            place.hardlink_to(source) if _same_device(source, target) else shutil.copy2(source, place)
        elif "__pycache__" not in source.parts:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
    return target


def files_of_patches(tree: Path, target: Path) -> Path:
    """A small tree: only the files that patches name or look at, and the version."""
    names = {edit.file for patch in PATCHES for variant in patch.variants for edit in variant.edits}
    names |= {witness.file for patch in PATCHES for witness in (*patch.fixed, *patch.foreign)}
    names |= {"vllm/_version.py"}
    for name in sorted(names):
        if (tree / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name, target / name)
    return target


def _same_device(source: Path, target: Path) -> bool:
    return source.stat().st_dev == target.stat().st_dev


def apply(folder: Path) -> list[str]:
    """Apply every patch; the files written."""
    tree = Tree(folder)
    result = changes(tree, check(tree, PATCHES))
    write(tree, result)
    return sorted(result)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes, links as where they point."""
    return {
        str(path.relative_to(folder)): path.readlink().as_posix().encode() if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or (path.is_file() and "__pycache__" not in path.parts)
    }
