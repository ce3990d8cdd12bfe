"""An anonymised recording of a box: the files preflight reads, in a tar that `./glm53 doctor --replay` takes.

Host names, MAC-derived and public addresses, units that are no desktop, and what is mounted from where are left out.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from core.refusal import Refusal
from preflight.facts.host import NCCL_FILES
from preflight.facts.network import addresses
from preflight.facts.rdma import COUNTERS
from preflight.facts.survey import NETWORK_FILES, Survey
from preflight.facts.sysfs import read

MOST_FILES, MOST_BYTES = 20_000, 64 << 20
PATTERNS = (
    "proc/sys/kernel/osrelease",
    "proc/sys/net/ipv4/ip_forward",
    "proc/meminfo",
    "proc/self/limits",
    "proc/self/mountinfo",
    "proc/net/route",
    *(f"sys/class/net/*/{name}" for name in ("mtu", "type", "carrier", "operstate", "speed", "carrier_changes")),
    "sys/class/net/*/device/vendor",
    "sys/class/infiniband/*/fw_ver",
    *(f"sys/class/infiniband/*/ports/1/{name}" for name in ("state", "phys_state", "link_layer", "rate")),
    *(f"sys/class/infiniband/*/ports/1/hw_counters/{name}" for name in COUNTERS),
    "sys/class/infiniband/*/ports/1/gids/*",
    "sys/class/infiniband/*/ports/1/gid_attrs/types/*",
    "sys/class/infiniband/*/ports/1/gid_attrs/ndevs/*",
    "sys/class/infiniband/*/device/uevent",
    "sys/class/infiniband/*/device/net/*/ifindex",
    *(
        f"sys/class/infiniband/*/device/{which}_link_{what}"
        for which in ("current", "max")
        for what in ("speed", "width")
    ),
    *NCCL_FILES,
)
_CURE = "Make one on the box: ./glm53 doctor --record OUT.tar"
_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


def record(survey: Survey, out: Path, root: Path = Path("/")) -> int:
    """Write the recording; returns how many files it holds. Raises OSError where `out` cannot be written."""
    files = {"proc/sys/kernel/hostname": "box", "proc/sys/kernel/random/boot_id": "0" * 8}
    for pattern in PATTERNS:
        for path in root.glob(pattern):
            name = str(path.relative_to(root))
            text = read(path, 1 << 20)
            if text:
                files[name] = _gid(text) if "/gids/" in name else text
    files["proc/self/mountinfo"] = re.sub(
        r"(?m) - (\S+) \S+ .*$", r" - \1 source x", files.get("proc/self/mountinfo", "")
    )
    for unit in survey.host.desktops:
        files[f"run/systemd/units/invocation:{unit}.service"] = ""
    held = addresses(root)
    files["addresses"] = "".join(f"{name} {text}\n" for name, texts in held.items() for text in texts)
    if survey.configured is not None:
        files[NETWORK_FILES[0].replace("*", "recorded")] = _kept_addresses(survey.configured)
    extra = {
        "gpus": None if survey.gpus is None else [{**asdict(one), "processes": []} for one in survey.gpus],
        "disks": {path: list(space) for path, space in survey.box.disks.items()},
        "folders": [asdict(one) for one in survey.host.folders],
        "registered": None if survey.registered is None else asdict(survey.registered),
    }
    files = {name: _IPV4.sub(lambda match: _public(match.group()), text) for name, text in files.items()}
    files["recorded.json"] = json.dumps(extra)
    with tarfile.open(out, "w") as tar:
        for name, text in sorted(files.items()):
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return len(files)


@contextmanager
def replayed(path: Path) -> Iterator[Path]:
    """The recording as a file tree. Raises Refusal for anything that is none; links and paths outside are refused."""
    with tempfile.TemporaryDirectory(prefix="glm53-replay-") as folder:
        try:
            with tarfile.open(path, "r:") as tar:
                entries = tar.getmembers()
                plain = all(entry.isfile() or entry.isdir() for entry in entries)
                if not plain or len(entries) > MOST_FILES or sum(entry.size for entry in entries) > MOST_BYTES:
                    raise Refusal("--replay", str(path), "a recording: plain files, at most 64 MiB", _CURE)
                tar.extractall(folder, filter="data")
        except (OSError, tarfile.TarError, EOFError, ValueError) as error:
            seen = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise Refusal("--replay", f"{path}: {seen}", "a recording (tar)", _CURE) from None
        yield Path(folder)


def _gid(text: str) -> str:
    """MAC-derived and public IPv6 entries say who this is; v4-mapped ones are the rails."""
    try:
        address = IPv6Address(text)
    except ValueError:
        return ""
    if address.ipv4_mapped or not int(address):
        return text
    return str(IPv6Address("fe80::1" if address.is_link_local else "2001:db8::1").exploded)


def _public(text: str) -> str:
    try:
        address = IPv4Address(text)
    except ValueError:
        return text
    return f"203.0.113.{int(address) % 256}" if address.is_global else text


def _kept_addresses(text: str) -> str:
    words = re.findall(r"\d{1,3}(?:\.\d{1,3}){3}/\d+", text)
    return "\n".join([*(["link-local"] if "link-local" in text else []), *words]) or "nothing"
