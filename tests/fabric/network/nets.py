"""Boxes with a LAN and two fabric networks, in namespaces of this machine: `python3 nets.py SPEC.json`.

Started under `unshare` (see test_network.py), so that namespaces, bridges and processes are gone with it. Every box is
a network namespace with lan0, fab0 and fab1 on three bridges, and a mount namespace in which /sys/class/net is a tree
that calls fab0 and fab1 ConnectX netdevs. The kit and torch are the real ones; nothing is launched but a sleep.

Prints one line of JSON: every box's log, and the bytes that each of its netdevs has received.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LAN, FABRICS = "10.77.0", ("198.18.0", "198.19.0")
NETS = {"lan0": LAN, "fab0": FABRICS[0], "fab1": FABRICS[1]}
OVERLAYS = Path("/opt/glm53-overlays")  # where the image has them; /opt is empty in these namespaces


def ip(*words: str) -> None:
    """One ip command; a failure is a defect of the test."""
    subprocess.run(["ip", *words], check=True)


def inside(name: str, *words: str) -> list[str]:
    """A command in the network of a box."""
    return ["nsenter", f"--net=/run/netns/{name}", *words]


def networks(boxes: list[str], down: dict[str, list[str]], mtu: dict[str, dict[str, int]]) -> None:
    """Three bridges, and three veths a box; `down` and `mtu`: box -> its netdevs that are down, or have another MTU."""
    for net in NETS:
        ip("link", "add", f"br-{net}", "type", "bridge")
        ip("link", "set", f"br-{net}", "mtu", "9000", "up")
    for number, name in enumerate(boxes):
        ip("netns", "add", name)
        subprocess.run(inside(name, "ip", "link", "set", "lo", "up"), check=True)
        for net, subnet in NETS.items():
            outer = f"{net}-{number}"
            ip("link", "add", outer, "mtu", "9000", "type", "veth", "peer", "name", net, "netns", name)
            ip("link", "set", outer, "master", f"br-{net}", "up")
            size = str(mtu.get(name, {}).get(net, 1500 if net == "lan0" else 9000))
            subprocess.run(inside(name, "ip", "address", "add", f"{subnet}.{number + 1}/24", "dev", net), check=True)
            state = "down" if net in down.get(name, []) else "up"
            subprocess.run(inside(name, "ip", "link", "set", net, "mtu", size, state), check=True)


def tree(folder: Path, down: list[str], mtu: dict[str, int]) -> None:
    """What /sys/class/net shows of a box."""
    for net in ("lo", *NETS):
        fabric = net.startswith("fab")
        files = {
            "mtu": str(mtu.get(net, 65536 if net == "lo" else 9000 if fabric else 1500)),
            "type": "772" if net == "lo" else "1",
            "carrier": "0" if net in down else "1",
            "operstate": "down" if net in down else "up",
            "speed": "200000" if fabric else "10000",
            **({"device/vendor": "0x15b3"} if fabric else {}),
        }
        for name, text in files.items():
            path = folder / net / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")


def start(root: Path, name: str, number: int, spec: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The kit of one box."""
    folder = root / name
    (folder / "model").mkdir(parents=True)
    for file in ("config.json", "generation_config.json"):
        (folder / "model" / file).write_text("{}")
    (folder / "model/model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    (folder / "overlay").mkdir()
    (folder / "overlay/hook.py").write_text(spec["overlay"].get(name, "pass\n"))
    tree(folder / "net", spec["down"].get(name, []), spec["mtu"].get(name, {}))
    peers = ",".join(f"{LAN}.{at + 1}:8082" for at in range(len(spec["boxes"])))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": spec["root"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "ENGINE_PROFILE": "lab-cpu",
        "ENGINE_PYTHON": str(root / "python"),
        "LAN_ADDRESS": f"{LAN}.{number + 1}",
        "DISCOVERY": "static",
        "PEERS": peers,
        "TP": str(len(spec["boxes"])),
        "GROUP_NAME": "nets",
        "SELF_TEST": "0",
        "MODEL_DIR": str(folder / "model"),
        "FABRIC_CHECK_BYTES": "2MiB",
        **{key: str(folder / key.lower()) for key in ("STATE_DIR", "LOG_DIR", "CACHE_ROOT")},
        **spec["settings"],
        **spec["own"].get(name, {}),
    }
    mounts = f"mount --bind {folder}/net /sys/class/net && mount --bind {folder}/overlay {OVERLAYS}"
    kit = f"hostname {name} && {mounts} && exec {sys.executable} -m entrypoint"
    with (folder / "kit.log").open("ab") as log:
        return subprocess.Popen(
            inside(name, "unshare", "--mount", "--uts", "sh", "-c", kit),
            env=environment,
            cwd=spec["root"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def processes(name: str) -> list[int]:
    """All processes in the network of a box."""
    found = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True).stdout
    return [int(word) for word in found.split()]


def main() -> int:
    """Exit status: 0 with the logs; a step that fails raises."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = Path(sys.argv[1]).parent
    boxes = spec["boxes"]
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/opt"], check=True)
    OVERLAYS.mkdir()
    ip("link", "set", "lo", "up")
    networks(boxes, spec["down"], spec["mtu"])
    for name, rate in spec["shaped"].items():
        shape = ["tc", "qdisc", "add", "dev", "fab0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms"]
        subprocess.run(inside(name, *shape), check=True)
    kits = [start(root, name, number, spec) for number, name in enumerate(boxes)]
    logs = {name: root / name / "kit.log" for name in boxes}
    until, paused = time.monotonic() + spec["seconds"], ""
    while time.monotonic() < until:
        texts = {name: path.read_text(errors="replace") for name, path in logs.items()}
        if spec["pause"] and not paused and spec["pause_at"] in texts[spec["pause"]]:
            paused = spec["pause"]
            for pid in processes(paused):
                os.kill(pid, signal.SIGSTOP)
        if all(spec["until"] in texts[name] for name in boxes if name != paused):
            break
        time.sleep(0.1)
    if paused:
        for pid in processes(paused):
            os.kill(pid, signal.SIGCONT)  # so that ending its kit ends all of it
    received = {}
    for name in boxes:
        shown = subprocess.run(inside(name, "ip", "-j", "-s", "link"), check=True, capture_output=True).stdout
        received[name] = {one["ifname"]: one["stats64"]["rx"]["bytes"] for one in json.loads(shown)}
    for kit in kits:
        kit.kill()
    texts = {name: path.read_text(errors="replace") for name, path in logs.items()}
    print(json.dumps({"logs": texts, "received": received}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
