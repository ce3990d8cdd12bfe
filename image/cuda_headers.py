"""Links CUDA headers and libraries that the base has as Python packages to where just-in-time compilers look.

FlashInfer and DeepGEMM compile kernels at run time; a base without nvrtc.h or an unversioned libnvrtc.so under
/usr/local/cuda kills the worker then, which looks like a hang.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PROBES = ("nvrtc.h", "cuda_runtime.h", "cublas_v2.h")


def sources(site: Path) -> list[Path]:
    """The toolkit folders among Python's packages: nvidia/cu13 and the like."""
    return sorted(path for path in site.glob("nvidia/cu*") if (path / "include").is_dir())


def link(site: Path, toolkit: Path) -> Iterator[str]:
    """Link what is missing; yields a line for the log. A file that is there is never replaced."""
    if not toolkit.is_dir():
        yield f"CUDA headers: no {toolkit} in this base, nothing to link"
        return
    made = 0
    for source in sources(site):
        for header in sorted((source / "include").iterdir()):
            made += _missing(toolkit / "include" / header.name, header)
        for library in sorted((source / "lib").glob("lib*.so.*")):
            plain = re.sub(r"\.so\..*$", ".so", library.name)
            made += _missing(toolkit / "lib64" / library.name, library)
            made += _missing(toolkit / "lib64" / plain, library)
    yield f"CUDA headers: {made} links made under {toolkit}"
    for probe in PROBES:
        if not (toolkit / "include" / probe).exists():
            yield f"CUDA headers: {probe} is still missing"


def _missing(place: Path, target: Path) -> int:
    if place.exists() or place.is_symlink():
        return 0
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return 1
