"""Compile Triton kernels ahead of time and launch them through the CUDA driver.

A variant is a kernel with its constants. Its cubin comes from the folder GLM53_OVERLAY_CUBINS when that holds one made
from the same sources, else from `triton.compile` at load time: never inside a user's first request, and not bound to
the Triton of the base image (3.6 lowers these kernels through shared memory, 3.7.1 and later do not). Under
TRITON_INTERPRET=1 the kernel runs on the CPU instead.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

logger = logging.getLogger("vllm.glm53")
ROOM = Path(__file__).resolve().parent
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
FOLDER = "GLM53_OVERLAY_CUBINS"


@dataclass(frozen=True)
class Variant:
    """A kernel with everything that is fixed at compile time.

    arguments  (name, Triton type) of what is passed at launch, in order; a type ending in "/16" is divisible by 16
    constants  (name, value) of the constexprs
    overlap    the kernel may start before the previous one of its stream has ended (it waits itself)
    """

    kernel: Any
    arguments: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, int | bool], ...]
    warps: int
    overlap: bool = False

    @property
    def name(self) -> str:
        """A readable name, unique among the variants of all kernels."""
        types = "".join(kind.strip("*").removesuffix("/16") for _, kind in self.arguments)
        constants = "-".join(f"{name}{int(value)}" for name, value in self.constants)
        return f"{self.kernel.__name__}-{constants}-w{self.warps}-{types}"


@dataclass(frozen=True)
class Binary:
    """A compiled variant: cubin, the function's name in it, bytes of dynamic shared memory, threads a block."""

    cubin: bytes
    function: str
    shared: int
    threads: int


@cache
def sources(kernel: Any) -> str:
    """12 hex digits over the sources a kernel is made of: a cubin of other sources is never loaded."""
    module = Path(str(kernel.fn.__code__.co_filename))
    files = (ROOM / "nvfp4" / "kernel.py", module)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def compile_variant(variant: Variant, capability: int) -> Binary:
    """Compile for compute capability 90 or 121 (sm_90a, sm_121a); needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.kernel.arg_names
    signature = {name: kind.removesuffix("/16") for name, kind in variant.arguments}
    signature |= {name: "constexpr" for name, _ in variant.constants}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in variant.arguments if "/16" in kind}
    constants = {(names.index(name),): value for name, value in variant.constants}
    made = triton.compile(
        ASTSource(variant.kernel, {name: signature[name] for name in names}, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": variant.warps, "num_stages": 1},
    )
    if made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
        raise AssertionError(f"{variant.name} wants scratch memory, which this launcher does not give")
    return Binary(made.asm["cubin"], made.metadata.name, made.metadata.shared, 32 * variant.warps)


def store(binary: Binary, variant: Variant, capability: int, folder: Path) -> Path:
    """Write a cubin and what launching it needs; the path of the cubin."""
    path = _path(variant, capability, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(binary.cubin)
    about = {"function": binary.function, "shared": binary.shared, "threads": binary.threads}
    path.with_suffix(".json").write_text(json.dumps(about))
    return path


def find(variant: Variant, capability: int, folder: Path) -> Binary | None:
    """A stored cubin of these sources, or None."""
    path = _path(variant, capability, folder)
    if not path.is_file():
        return None
    about = json.loads(path.with_suffix(".json").read_text())
    return Binary(path.read_bytes(), about["function"], about["shared"], about["threads"])


def _path(variant: Variant, capability: int, folder: Path) -> Path:
    return folder / f"sm{capability}-{sources(variant.kernel)}" / f"{variant.name}.cubin"


class CudaError(RuntimeError):
    """A CUDA driver call that failed, by name and code."""


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(function: str, *arguments: Any) -> None:
    code = getattr(_driver(), function)(*arguments)
    if code != 0:
        raise CudaError(f"{function} failed with CUDA driver error {code}")


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, padding to 8 bytes, a value of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class Loaded:
    """A variant on the current device, ready to launch."""

    def __init__(self, binary: Binary, *, overlap: bool) -> None:
        self._binary = binary
        self._module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        self._attribute = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION)
        self._attribute.value[0] = 1
        self._attributes = 1 if overlap else 0
        _call("cuModuleLoadData", ctypes.byref(self._module), binary.cubin)
        _call("cuModuleGetFunction", ctypes.byref(self._function), self._module, binary.function.encode())
        if binary.shared > 48 * 1024:
            _call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, binary.shared)

    def launch(self, grid: Sequence[int], values: Sequence[ctypes._SimpleCData[Any]], stream: int) -> None:
        """Enqueue on a stream (a CUDA handle); `values` are the arguments as C values."""
        x, y, z = (*grid, 1, 1)[:3]
        kept = [*values, ctypes.c_void_p(0), ctypes.c_void_p(0)]  # global and profile scratch, unused
        pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept))
        config = _Config(
            (x, y, z),
            (self._binary.threads, 1, 1),
            self._binary.shared,
            stream,
            ctypes.pointer(self._attribute),
            self._attributes,
        )
        _call("cuLaunchKernelEx", ctypes.byref(config), self._function, pointers, None)


@cache
def _loaded(variant: Variant, device: int) -> Loaded:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    capability = 10 * major + minor
    folder = os.environ.get(FOLDER)
    binary = find(variant, capability, Path(folder)) if folder else None
    if folder and binary is None:
        logger.warning("%s: no cubin of these sources in %s; compiling", variant.name, folder)
    return Loaded(binary or compile_variant(variant, capability), overlap=variant.overlap)


def prepare(variant: Variant, device: int) -> None:
    """Compile or load now, so that no request waits for it and graphs can capture the launch."""
    if not INTERPRETED:
        _loaded(variant, device)


def run(variant: Variant, grid: Sequence[int], arguments: Mapping[str, Any]) -> None:
    """Launch on the current stream: tensors by pointer, Python numbers by the declared type."""
    if INTERPRETED:
        variant.kernel[tuple(grid)](**arguments, **dict(variant.constants), num_warps=variant.warps)
        return
    import torch

    device = next(value for value in arguments.values() if isinstance(value, torch.Tensor)).device
    values: list[Any] = []
    for name, kind in variant.arguments:
        value = arguments[name]
        if isinstance(value, torch.Tensor):
            values.append(ctypes.c_void_p(value.data_ptr()))
        elif kind == "fp32":
            values.append(ctypes.c_float(value))
        else:
            values.append(ctypes.c_int32(value))
    _loaded(variant, device.index or 0).launch(grid, values, torch.cuda.current_stream(device).cuda_stream)
