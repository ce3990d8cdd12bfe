"""Whether memory can be registered for RDMA now: a real buffer through libibverbs, in a process of its own.

Run as a script (`python3 -I`, for this folder has a `types.py`) it is that process: standard library only, one line
of JSON on stdout.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIBRARY = "libibverbs.so.1"
PROBE_BYTES = 64 << 20
MOST_DEVICES = 8
LONGEST_S = 10.0
# IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_READ: what NCCL asks for.
ACCESS = 1 | 2 | 4


@dataclass(frozen=True)
class Tried:
    """One device. `error` is empty, or the call that failed and its errno by name: "ibv_reg_mr: ENOMEM"."""

    device: str
    bytes: int
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Registration:
    """What the probe found. `absent` says why nothing was tried; `hung`: the probe had to be ended."""

    tried: tuple[Tried, ...] = ()
    absent: str = ""
    hung: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The devices in libibverbs' own order, which is NCCL's too."""
        return tuple(one.device for one in self.tried)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Registration:
        """The result as JSON holds it. Raises ValueError, KeyError or TypeError on anything else."""
        tried = tuple(
            Tried(str(one["device"]), int(one["bytes"]), float(one["seconds"]), str(one["error"]))
            for one in data["tried"]
        )
        return cls(tried, str(data["absent"]), bool(data.get("hung", False)))


def probe(size: int = PROBE_BYTES, library: str = LIBRARY, longest_s: float = LONGEST_S) -> Registration:
    """Register `size` bytes on every RDMA device, in a process of its own."""
    command = [sys.executable, "-I", __file__, str(size), library]
    try:
        done = subprocess.run(command, capture_output=True, timeout=longest_s, check=False)
    except subprocess.TimeoutExpired:
        return Registration(absent=f"the probe did not end within {longest_s:g} s", hung=True)
    except OSError as error:
        return Registration(absent=f"the probe cannot be started: {error.strerror}")
    try:
        return Registration.from_dict(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Registration(absent=f"the probe ended with status {done.returncode}: {said[-1] if said else 'silent'}")


def register(size: int, library: str) -> Registration:
    """In this process: one private anonymous buffer, registered and released on one device after the other."""
    try:
        verbs = ctypes.CDLL(library, use_errno=True)
    except OSError:
        return Registration(absent=f"{library} is not here")
    _declare(verbs)
    count = ctypes.c_int()
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    if not listed or not count.value:
        return Registration(absent="libibverbs finds no device (is /dev/infiniband in this container?)")
    devices = ctypes.cast(listed, ctypes.POINTER(ctypes.c_void_p))
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held = ctypes.c_char.from_buffer(buffer)
    found = tuple(
        _one(verbs, devices[at], ctypes.addressof(held), size) for at in range(min(count.value, MOST_DEVICES))
    )
    verbs.ibv_free_device_list(listed)
    return Registration(found)


def _declare(verbs: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("ibv_get_device_list", pointer, [ctypes.POINTER(ctypes.c_int)]),
        ("ibv_free_device_list", None, [pointer]),
        ("ibv_get_device_name", ctypes.c_char_p, [pointer]),
        ("ibv_open_device", pointer, [pointer]),
        ("ibv_close_device", ctypes.c_int, [pointer]),
        ("ibv_alloc_pd", pointer, [pointer]),
        ("ibv_dealloc_pd", ctypes.c_int, [pointer]),
        ("ibv_reg_mr", pointer, [pointer, pointer, ctypes.c_size_t, ctypes.c_int]),
        ("ibv_dereg_mr", ctypes.c_int, [pointer]),
    ):
        function = getattr(verbs, name)
        function.restype, function.argtypes = result, arguments


def _one(verbs: ctypes.CDLL, device: int | None, address: int, size: int) -> Tried:
    name = (verbs.ibv_get_device_name(device) or b"?").decode("utf-8", "replace")
    began = time.monotonic()
    ctypes.set_errno(0)
    context = verbs.ibv_open_device(device)
    domain = verbs.ibv_alloc_pd(context) if context else None
    region = verbs.ibv_reg_mr(domain, address, size, ACCESS) if domain else None
    calls = (("ibv_open_device", context), ("ibv_alloc_pd", domain), ("ibv_reg_mr", region))
    failed = next((call for call, got in calls if not got), "")
    error = f"{failed}: {errno.errorcode.get(ctypes.get_errno(), 'no errno')}" if failed else ""
    took = time.monotonic() - began
    if region:
        verbs.ibv_dereg_mr(region)
    if domain:
        verbs.ibv_dealloc_pd(domain)
    if context:
        verbs.ibv_close_device(context)
    return Tried(name, size, round(took, 4), error)


def main(arguments: list[str]) -> int:
    """Exit status: 0 with a line of JSON, whatever was found."""
    found = register(int(arguments[0]), arguments[1])
    tried = [{"device": t.device, "bytes": t.bytes, "seconds": t.seconds, "error": t.error} for t in found.tried]
    print(json.dumps({"tried": tried, "absent": found.absent}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
