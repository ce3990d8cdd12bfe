"""Which CUDA each part of a base is of, read from the files themselves: nothing is run, no GPU is needed.

nvcc compiles with cicc (nvvm) and against the headers of crt and of the runtime; nvrtc does the same inside a process.
Where one of them is of another CUDA, a kernel dies while it is compiled, minutes after a start.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

from core.row import Row

# NVIDIA's compilers hold their build as text: cuda_13.0.r13.0/compiler.36424714_0.
BUILD = re.compile(rb"cuda_(\d+\.\d+)\.r\d")
# Part -> (file of a toolkit, where its version stands).
FILES = {
    "toolkit": ("version.json", re.compile(rb'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)')),
    "nvcc": ("bin/nvcc", BUILD),
    "nvvm": ("nvvm/bin/cicc", BUILD),
    "runtime": ("include/cuda_runtime_api.h", re.compile(rb"#define\s+CUDART_VERSION\s+(\d+)")),
}
NVRTC = re.compile(r"libnvrtc-builtins\.so\.(\d+\.\d+)")
# The headers of crt name no version: their package does.
DEBIAN_CRT = re.compile(r"^Package: cuda-crt-(\d+)-(\d+)$", re.M)
PACKAGE = re.compile(r"nvidia_(?:cuda_(nvcc|crt|runtime|nvrtc)|(nvvm))(?:_cu\d+)?-(\d+\.\d+)(?:\.[\w.]+)?\.dist-info")
TORCH = re.compile(r"^cuda\s*(?::[^=]*)?=\s*'(\d+\.\d+)", re.M)
HEADERS = ("nvrtc.h", "cuda_runtime.h")


def rows(toolkit: Path, site: Path, root: Path = Path("/")) -> Iterator[Row]:
    """A toolkit whose parts disagree fails: it compiles the kernels. Packages or a torch of another CUDA warn, since
    each may bring what it needs itself.
    """
    places = {
        "toolkit": of_toolkit(toolkit, root),
        "Python packages": of_packages(site),
        "torch": of_torch(site),
    }
    places = {place: parts for place, parts in places.items() if parts}
    if not places:
        yield Row("CUDA", "info", "none in this base", "on a GPU base: nvcc, crt, nvvm, runtime, nvrtc")
        return
    shown = "; ".join(
        f"{place} " + ", ".join(f"{name} {version}".strip() for name, version in parts.items())
        for place, parts in places.items()
    )
    if len(set(places.get("toolkit", {}).values())) > 1:
        yield Row("CUDA", "FAIL", shown, "one version of the toolkit's parts", "Choose another base.", "cuda")
    elif len({version for parts in places.values() for version in parts.values()}) > 1:
        cure = "Headers that the toolkit lacks are linked from the packages: prefer a base of one version."
        yield Row("CUDA", "WARN", shown, "one version everywhere", cure, "cuda")
    else:
        yield Row("CUDA", "ok", shown, "one version")
    for header in HEADERS if "toolkit" in places else ():
        if not (toolkit / "include" / header).exists():
            yield Row(f"CUDA {header}", "FAIL", "missing", "where just-in-time compilers look", "", "cuda")


def of_toolkit(toolkit: Path, root: Path = Path("/")) -> dict[str, str]:
    """Part -> major.minor of an installed toolkit, of the parts that are there; `root` has Debian's package list."""
    found = {}
    for name, (file, pattern) in FILES.items():
        version = _search(toolkit / file, pattern)
        if version:
            found[name] = _major_minor(version)
    for folder in ("lib64", "lib", *(f"targets/{arch}-linux/lib" for arch in ("sbsa", "aarch64", "x86_64"))):
        for path in sorted((toolkit / folder).glob("libnvrtc-builtins.so.*")):
            match = NVRTC.match(path.name)
            if match:
                found["nvrtc"] = match.group(1)
    packages = of_packages(toolkit / "dist-info")
    listed = root / "var/lib/dpkg/status"
    debian = DEBIAN_CRT.findall(listed.read_text(errors="replace")) if found and listed.is_file() else []
    if "crt" in packages:
        found["crt"] = packages["crt"]
    elif debian:
        found["crt"] = ".".join(debian[-1])
    return found


def of_packages(site: Path) -> dict[str, str]:
    """Part -> major.minor of NVIDIA's Python packages in a folder."""
    matches = (PACKAGE.fullmatch(path.name) for path in sorted(site.glob("nvidia_*.dist-info")))
    return {match.group(1) or match.group(2): match.group(3) for match in matches if match}


def of_torch(site: Path) -> dict[str, str]:
    """The CUDA that torch was built for, under an empty name; nothing for a torch without."""
    file = site / "torch" / "version.py"
    match = TORCH.search(file.read_text(errors="replace")) if file.is_file() else None
    return {"": match.group(1)} if match else {}


def _search(path: Path, pattern: re.Pattern[bytes]) -> str:
    """The pattern's first group in a file that may be large; "" where it does not stand, or nothing is there."""
    if not path.is_file() or not path.stat().st_size:
        return ""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        match = pattern.search(content)
        return match.group(1).decode() if match else ""


def _major_minor(text: str) -> str:
    """13000 is 13.0, as CUDA's headers number it."""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isdigit() else text
