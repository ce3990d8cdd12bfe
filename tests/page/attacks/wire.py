"""Raw bytes to a box's page, from any loopback address."""

from __future__ import annotations

import contextlib
import itertools
import socket
from pathlib import Path

from tests.main.kits.boxes import Box

PORT = 8082
_hosts = itertools.count(1)


def fresh_address() -> str:
    """A loopback address nobody used yet: limits are counted by address."""
    number = next(_hosts)
    return f"127.240.{number // 250}.{number % 250 + 1}"


def connect(box: Box, source: str = "", timeout_s: float = 10) -> socket.socket:
    """An open connection."""
    return socket.create_connection((box.lan, PORT), timeout_s, (source, 0) if source else None)


def send(
    box: Box, data: bytes, source: str = "", timeout_s: float = 10, *, half: bool = False, most: int = 10**9
) -> bytes:
    """What the box answers until it closes, or nothing comes for `timeout_s`, or `most` bytes have come.

    `half`: say that nothing more comes; a request that is not whole ends there then.
    """
    found = bytearray()
    with connect(box, source, timeout_s) as wire, contextlib.suppress(OSError):
        wire.sendall(data)
        if half:
            wire.shutdown(socket.SHUT_WR)
        while len(found) < most and (block := wire.recv(65536)):
            found += block
    return bytes(found)


def get(box: Box, path: str, source: str = "", **headers: str) -> bytes:
    """The answer to a GET whose path is sent as it is."""
    lines = {"Host": f"{box.lan}:{PORT}", "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return send(box, f"GET {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace"), source)


def status_of(answer: bytes) -> int:
    """The status of an HTTP answer; 0 where there is none."""
    words = answer.split(b"\r\n", 1)[0].split(b" ")
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def well(box: Box) -> None:
    """The page answers at once, the kit has no traceback."""
    answer = get(box, "/healthz", fresh_address())
    assert status_of(answer) == 503  # one of two boxes: not healthy, and says so
    assert b'"healthy"' in answer
    assert "Traceback" not in box.log()


def rss_mib(box: Box) -> float:
    """Resident memory of the kit's process."""
    assert box.process is not None
    text = Path(f"/proc/{box.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")) / 1024


def open_files(box: Box) -> int:
    """Descriptors of the kit's process."""
    assert box.process is not None
    return len(list(Path(f"/proc/{box.process.pid}/fd").iterdir()))
