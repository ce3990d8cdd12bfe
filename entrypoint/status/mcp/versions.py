"""Versions of what serves, from metadata and the kernel's files: importing torch would cost a gigabyte for good."""

from __future__ import annotations

import asyncio
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from entrypoint.status.mcp.tool import Call, Result, Tool
from entrypoint.status.roots import engine_source

PACKAGES = (
    "vllm",
    "torch",
    "triton",
    "flashinfer-python",
    "tilelang",
    "transformers",
    "ray",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
)
FILES = {
    "driver": "proc/driver/nvidia/version",
    "bios": "sys/class/dmi/id/bios_version",
    "board": "sys/class/dmi/id/board_name",
    "product": "sys/class/dmi/id/product_name",
}
LONGEST = 400


async def versions(call: Call) -> Result:
    """Kit, kernel, driver, board, GPUs, and the packages of the engine's environment."""
    boot = call.boot
    return Result(await asyncio.to_thread(_rows, boot.root, boot.version, boot.text("ENGINE_PYTHON", "python3")))


def _rows(root: Path, kit: str, python: str) -> list[dict[str, Any]]:
    from preflight.facts.gpu import gpus

    rows: list[dict[str, Any]] = [
        {"name": "kit", "version": kit},
        {"name": "kit's Python", "version": platform.python_version()},
        {"name": "kernel", "version": f"{os.uname().release} {os.uname().machine}"},
    ]
    for name, path in FILES.items():
        try:
            text = (root / path).read_text(errors="replace")[:LONGEST].strip()
        except OSError:
            continue  # no such hardware here
        rows.append({"name": name, "version": text.splitlines()[0] if text else ""})
    rows += [{"name": "gpu", "version": f"{gpu.name}, driver {gpu.driver}"} for gpu in gpus() or ()]
    folders = [str(Path(folder).parent) for folder in engine_source(python)]
    for name in PACKAGES:
        found = next(iter(metadata.distributions(name=name, path=folders)), None)
        if found is not None:
            rows.append({"name": name, "version": found.version})
    return rows


TOOLS = (
    Tool(
        "versions", "Versions of the kit, kernel, driver, board, GPUs and the engine's packages.", versions, node=True
    ),
)
