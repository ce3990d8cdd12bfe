"""Read and grow safetensors files as streams of bytes: a few MiB of memory whatever their size.

The layout of a grown file follows from the header alone, so that an interrupted one is continued where it ended.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CHUNK = 8 * 1024 * 1024
_ZEROS = bytes(CHUNK)
ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
Reshape = Callable[[str, tuple[int, ...]], tuple[int, ...]]
Progress = Callable[[int], None]


class Unreadable(ValueError):
    """A file that is no safetensors file, is cut short, or holds a kind of number not known here."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: `start` and `end` are absolute positions in it, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Growth:
    """A tensor as it lies in the source and as it will lie in the grown file."""

    source: Tensor
    target: Tensor


def read_header(path: Path) -> tuple[list[Tensor], dict[str, str]]:
    """Tensors in file order, and the file's metadata. Raises Unreadable, OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, 512 * 1024 * 1024):
            raise Unreadable(f"{path}: no safetensors header")
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            tensors = [
                Tensor(name, item["dtype"], tuple(item["shape"]), *(8 + length + at for at in item["data_offsets"]))
                for name, item in header.items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unreadable(f"{path}: no safetensors header") from None
    tensors.sort(key=lambda tensor: tensor.start)
    for tensor in tensors:
        if not 8 + length <= tensor.start <= tensor.end <= size:
            raise Unreadable(f"{path}: {tensor.name} lies outside the file; the download is cut short")
    return tensors, metadata


def layout(tensors: list[Tensor], metadata: dict[str, str], reshape: Reshape) -> tuple[bytes, list[Growth]]:
    """The grown file's header, and each tensor's old and new place. Raises Unreadable for an unknown kind."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    shapes, at = [], 0
    for tensor in tensors:
        shape = reshape(tensor.name, tensor.shape)
        length = tensor.end - tensor.start
        if shape != tensor.shape:
            if tensor.dtype not in ITEM_BYTES or length != math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]:
                raise Unreadable(f"{tensor.name}: {tensor.dtype} of {list(tensor.shape)} in {length} bytes")
            length = math.prod(shape) * ITEM_BYTES[tensor.dtype]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(shape), "data_offsets": [at, at + length]}
        shapes.append((tensor, shape, at, at + length))
        at += length
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    grown = [
        Growth(tensor, Tensor(tensor.name, tensor.dtype, shape, begin + start, begin + end))
        for tensor, shape, start, end in shapes
    ]
    return len(text).to_bytes(8, "little") + text, grown


def grow(source: Path, target: Path, reshape: Reshape, progress: Progress = lambda count: None) -> None:
    """Write `target`, `source` with its tensors reshaped: old values in the first corner, zeros elsewhere.

    Written beside it as `.part` and renamed when whole; an existing `.part` is continued. `progress` is told bytes
    read. Zeros become holes where the file system has them.
    """
    header, grown = layout(*read_header(source), reshape)
    part = target.with_name(target.name + ".part")
    done = _continued(part, header)
    with source.open("rb") as reader, part.open("r+b" if done else "w+b") as writer:
        writer.write(header)
        for growth in grown:
            if growth.target.end <= done:
                progress(growth.source.end - growth.source.start)
                continue
            for position, data in _pieces(reader, growth, progress):
                if data != (_ZEROS if len(data) == CHUNK else bytes(len(data))):
                    writer.seek(position)
                    writer.write(data)
        writer.truncate(grown[-1].target.end if grown else len(header))
        writer.flush()
        os.fsync(writer.fileno())
    part.rename(target)


def _continued(part: Path, header: bytes) -> int:
    """How far an interrupted file goes, when it was begun with the same header; else 0."""
    if not part.is_file():
        return 0
    with part.open("rb") as file:
        return part.stat().st_size if file.read(len(header)) == header else 0


def _pieces(reader: BinaryIO, growth: Growth, progress: Progress) -> Iterator[tuple[int, bytes]]:
    """(absolute position in the grown file, bytes): rows before the grown axis, old part of each; holes left out."""
    source, target = growth.source, growth.target
    axis = next((at for at, pair in enumerate(zip(source.shape, target.shape, strict=True)) if pair[0] != pair[1]), 0)
    rows = math.prod(source.shape[:axis]) if source.shape != target.shape else 1
    old, new = (source.end - source.start) // max(1, rows), (target.end - target.start) // max(1, rows)
    joined = old != new and rows > 1
    pad = bytes(new - old) if joined else b""
    step = max(1, CHUNK // new) * old if joined else CHUNK
    for offset in range(0, source.end - source.start, step):
        count = min(step, source.end - source.start - offset)
        data = _exactly(reader, source.start + offset, count)
        progress(count)
        if data is not None:
            rows_here = range(0, count, old) if joined else ()
            whole = b"".join(data[at : at + old] + pad for at in rows_here) if joined else data
            yield target.start + (offset // old * new if joined else offset), whole


def _exactly(reader: BinaryIO, at: int, count: int) -> bytes | None:
    """`count` bytes at `at`, or None where the file has a hole there: nothing but zeros."""
    try:
        if os.lseek(reader.fileno(), at, os.SEEK_DATA) >= at + count:
            return None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the end of the file
            return None
    parts, left = [], count
    while left:
        part = os.pread(reader.fileno(), left, at + count - left)
        if not part:
            raise Unreadable(f"{reader.name}: ended early; the download is cut short")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
