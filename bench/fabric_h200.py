"""The fabric check's NCCL path on real GPUs: `python3 bench/fabric_h200.py OUT.json` on a machine with 1 or 2 GPUs.

Needs nothing but the repository and a Python whose torch has NCCL. Uses the check's own worker, rendezvous and verdict.
With two GPUs also: torch's own measurement beside ours, one rank killed, one rank stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fabric.round import WORKER, Job, Outcome, run_round
from fabric.verdict import rows

BYTES = 256 << 20
NAMES = ("gpu0", "gpu1")
# NVLink multicast stays off on the lent machines.
NCCL = {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO"}

OWN = """
import json, os, sys, time, torch, torch.distributed as dist
rank, world, size = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{sys.argv[4]}", rank=rank, world_size=world)
data = torch.zeros(size // 4, device="cuda")
for _ in range(5): dist.all_reduce(data)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(20): dist.all_reduce(data)
end.record(); torch.cuda.synchronize()
seconds = start.elapsed_time(end) / 1000 / 20
if rank == 0: print(json.dumps({"gbps": 2 * (world - 1) / world * size * 8 / seconds / 1e9, "seconds": seconds}))
dist.destroy_process_group()
"""


def port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def job(world: int) -> Job:
    """The job of rank 0; the others differ in rank and device."""
    facts = {"kit": "bench", "overlay files": "aaaa"}
    return Job(0, world, "127.0.0.1", port(), "nccl", BYTES, facts, meet_s=90.0, run_s=60.0)


async def round_of(first: Job, planted: bool, on_phase: Any = None) -> list[tuple[Outcome, float]]:
    """All ranks at once, each on a GPU of its own: outcome and the second at which it ended."""
    through: set[int] = set()  # as the kits tell each other

    async def one(rank: int) -> tuple[Outcome, float]:
        facts = {**first.facts, "overlay files": "bbbb"} if planted and rank == 1 else first.facts
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, **NCCL, "NCCL_DEBUG_FILE": f"{folder}/nccl.log"}
            mine = replace(first, rank=rank, device=rank, facts=facts)
            said = (lambda phase: on_phase(rank, phase)) if on_phase else (lambda phase: None)
            ended = (lambda: through - {rank}) if first.world > 1 else tuple
            done = await run_round(sys.executable, mine, environment, 120.0, said, ended=ended)
            through.add(rank)
            return done, time.monotonic()

    return list(await asyncio.gather(*(one(rank) for rank in range(first.world))))


def worker(rank: int) -> int:
    """The pid of a rank's worker: children in the order they were started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                command = folder.joinpath("cmdline").read_text()
            except OSError:
                continue  # ended meanwhile
            if int(parent) == os.getpid() and str(WORKER) in command:
                found.append(int(folder.name))
    return sorted(found)[rank]


async def disturbed(number: signal.Signals) -> dict[str, Any]:
    """Rank 1 gets a signal while all are reducing; rank 0 must name it."""
    met: set[int] = set()
    hit: list[float] = []

    def on_phase(rank: int, phase: str) -> None:
        if phase == "grouped":
            met.add(rank)
        if len(met) == 2 and not hit:
            hit.append(time.monotonic())
            os.kill(worker(1), number)

    first = replace(job(2), bytes=4 << 30)
    done = await round_of(first, False, on_phase)
    outcome, ended = done[0]
    named = [row.seen for row in rows(outcome, NAMES, 0.0, 0)]
    return {
        "signal": number.name,
        "blamed": {str(rank): why for rank, why in outcome.blamed.items()},
        "error": outcome.error,
        "seconds_from_signal_to_end_of_rank_0": round(ended - hit[0], 2) if hit else None,
        "named": named,
        "met": 1 in outcome.blamed,
    }


def own_measurement(world: int) -> Mapping[str, float]:
    """torch's all-reduce timed by CUDA events, in processes of its own."""
    number = str(port())
    command = [sys.executable, "-c", OWN]
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0"}
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), str(BYTES), number], env=environment, stdout=subprocess.PIPE)
        for rank in range(world)
    ]
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    found: Mapping[str, float] = json.loads(texts[0].splitlines()[-1])
    return found


def shown(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON can hold it."""
    return {**asdict(outcome), "blamed": {str(rank): why for rank, why in outcome.blamed.items()}}


def main() -> int:
    """Exit status: 0 when everything asked for was met, 1 otherwise."""
    import torch

    world = min(2, torch.cuda.device_count())
    began = time.monotonic()
    ours = asyncio.run(round_of(job(world), planted=world == 2))
    outcome = ours[0][0]
    result: dict[str, Any] = {
        "what": f"fabric check, NCCL, {world} rank(s), {BYTES >> 20} MiB all-reduce",
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
        "outcome": shown(outcome),
        "rows": [row.as_dict() for row in rows(outcome, NAMES[:world], 0.0, 0)],
        "seconds_of_the_check": round(ours[0][1] - began, 2),
    }
    met = {"complete": outcome.complete}
    if world == 2:
        own = own_measurement(world)
        result["own"] = own
        result["ours_to_own"] = outcome.gbps / own["gbps"]
        met["within 10 % of torch's own"] = abs(outcome.gbps / own["gbps"] - 1) <= 0.1
        met["planted difference named"] = any("overlay files" in row["seen"] for row in result["rows"])
        result["disturbed"] = [asyncio.run(disturbed(number)) for number in (signal.SIGKILL, signal.SIGSTOP)]
        for one in result["disturbed"]:
            met[f"{one['signal']} named"] = one["met"]
    result["met"] = met
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
