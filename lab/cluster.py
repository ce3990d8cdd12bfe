"""Bring a lab up, take it down, start and stop single boxes."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from core.refusal import Refusal
from lab import blocks, model, processes, providers, state, vllm
from lab.environment import command, environment, make_folders
from lab.state import Box, Lab
from lab.watch import Say
from launcher.environments import locked, python_of
from launcher.paths import ROOT, cache

API_PORT, STATUS_PORT = 8002, 8082
GRACE_S = 90.0


def create(
    name: str,
    count: int,
    set_: Mapping[str, str],
    namespaces: bool | None = None,
    provider: str = "process",
    tree: str = "",
) -> tuple[Lab, socket.socket]:
    """Claim addresses and describe a lab; no box is started. The socket holds the claim until boxes do.

    `namespaces` None takes them where permitted; `tree`: see Lab. Raises Refusal when a lab of this name is up or on
    its way.
    """
    state.check_name(name)
    with _one_at_a_time():
        if state.file_of(name).exists():
            before = state.load(name)
            _not_by_another(before)
            up = [box.name for box in before.boxes if providers.of(before).kept(box).alive]
            if up:
                raise Refusal("lab", f"'{name}' is up ({', '.join(up)})", "no lab of that name", "./glm53 lab down")
            remove(before)
        made = providers.named(provider)
        made.check()
        ports = (int(set_.get("API_PORT", API_PORT)), int(set_.get("STATUS_PORT", STATUS_PORT)))
        block, held = blocks.claim(count, ports)
        lab = replace(state.describe(name, count, block, ports, True, dict(set_)), provider=provider, tree=tree)
        permitted = made.namespaces_permitted() if namespaces is None else namespaces
        boxes = tuple(replace(box, address=made.address(block, box.number)) for box in lab.boxes)
        lab = replace(lab, namespaces=permitted, boxes=boxes, starter=_me())
        state.save(lab)
        return lab, held


def start(lab: Lab, box: Box, held: socket.socket | None = None) -> None:
    """Start one box; environments and the model must exist or are made here, with progress.

    Raises Refusal when the lab was taken down meanwhile.
    """
    if not state.file_of(lab.name).exists():
        raise Refusal("lab", f"'{lab.name}' was taken down", "a lab that was brought up", "./glm53 lab up")
    root, engine, kit, tiny = ROOT, python_of(vllm.environment()), python_of(locked("kit")), model.tiny()
    settings = environment(lab, box, root, engine, tiny)
    make_folders(settings, box)
    claim = held if held is not None else blocks.hold(lab.block)
    try:
        providers.of(lab).start(lab, box, command(kit), settings, claim.fileno() if claim else None)
    finally:
        if claim is not None and held is None:
            claim.close()


def start_all(lab: Lab, held: socket.socket, at_s: Sequence[float], say: Say) -> float:
    """Start box k at second at_s[k] (0 beyond its end), in order of time; returns the clock at the last start."""
    vllm.environment()
    locked("kit")
    providers.of(lab).prepare(lab)
    begin = time.monotonic()
    times = [(at_s[index] if index < len(at_s) else 0.0, box) for index, box in enumerate(lab.boxes)]
    for when, box in sorted(times, key=lambda pair: (pair[0], pair[1].number)):
        time.sleep(max(0.0, begin + when - time.monotonic()))
        start(lab, box, held)
        if when:
            say(f"  {when:5.1f}s  {box.name} started")
    state.save(replace(lab, starter=(0, 0)))
    return time.monotonic()


def stop(lab: Lab, boxes: Sequence[Box], grace_s: float = GRACE_S) -> list[str]:
    """Stop boxes side by side, as Docker would; returns those that had to be killed."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(1, len(boxes))) as pool:
        ended = list(pool.map(lambda box: providers.of(lab).stop(lab, box, grace_s), boxes))
    return [box.name for box, gently in zip(boxes, ended, strict=True) if not gently]


def down(lab: Lab, grace_s: float = GRACE_S) -> list[str]:
    """Stop all boxes, remove the lab's files and check that nothing is left. Returns the boxes that were killed.

    Raises Refusal naming what is left, or when another process is still starting its boxes.
    """
    _not_by_another(lab)
    killed = stop(lab, lab.boxes, grace_s)
    left = providers.of(lab).leftovers(lab)
    if left:
        raise Refusal("lab down", "left: " + "; ".join(left), "nothing left", "Look at them with ps and ss.")
    remove(lab)
    return killed


def remove(lab: Lab) -> None:
    """Remove the files of a lab that is down."""
    for box in lab.boxes:
        if (box.path / "spec.json").exists():
            for base in (cache() / "tmp", Path("/tmp")):
                shutil.rmtree(base / f"glm53-{lab.group}-{box.number}", ignore_errors=True)
    shutil.rmtree(state.home() / lab.name, ignore_errors=True)
    state.file_of(lab.name).unlink(missing_ok=True)


def _me() -> tuple[int, int]:
    own = processes.look(os.getpid())
    return (own.pid, own.born) if own is not None else (0, 0)


def _not_by_another(lab: Lab) -> None:
    """Refusal while another `lab up` starts the boxes of this lab: what it has not started yet nobody could stop."""
    pid, born = lab.starter
    now = processes.look(pid) if pid and pid != os.getpid() else None
    if now is not None and now.born == born:
        seen = f"'{lab.name}' is being brought up by process {pid}"
        raise Refusal("lab", seen, "one `lab up` at a time", f"Wait for it, or end it (kill {pid}): it cleans up.")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two `lab up` of one clone take turns."""
    state.home().mkdir(exist_ok=True)
    with (state.home() / ".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
