"""One rank of the fabric check: a short-lived process of the engine's own Python, a script that imports no kit module.

stdin   one line of JSON: the job with the environment it is for (fabric/round.py writes it). torch is imported before
        that is read, so that a worker started early has it behind it; without a job the process ends after IDLE_S
stdout  one line of JSON an event: phase, missing, blame, error, result

Ranks meet at a TCPStore on the head, compare facts, join a process group and reduce. A second connection carries
heartbeats, so that a rank that is killed or stopped is named within `silent_s` while the main thread hangs in NCCL.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

BEAT_S = 0.25
LINGER_S = 1.5  # rank 0 holds the store: the others must read the blame before it goes
IDLE_S = 900.0  # a worker that nobody gives a job holds 220 MiB
LATENCY_BYTES = (8, 8192, 65536)


def say(event: str, **fields: Any) -> None:
    """One event for the parent."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Watch(threading.Thread):
    """Beats for this rank and looks at the others' beats; ends the process when one of them is silent."""

    def __init__(self, dist: Any, job: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.job, self.rank = job, int(job["rank"])
        self.silent_s = float(job["silent_s"])
        self.store = dist.TCPStore(
            job["host"], job["port"], None, False, timedelta(seconds=self.silent_s), wait_for_workers=False
        )
        self.finished = False

    def run(self) -> None:
        """Until finished: beat, read, judge."""
        seen: dict[int, tuple[bytes, float]] = {}
        before = time.monotonic()
        count = 0
        while not self.finished:
            now = time.monotonic()
            if now - before > self.silent_s:
                self.end(self.rank, "was paused itself")
            before = now
            count += 1
            try:
                self.store.set(f"beat/{self.rank}", str(count))
                if self.store.check(["blame"]):
                    told = json.loads(self.store.get("blame"))
                    self.end(told["rank"], told["why"])
                for other in range(self.job["world"]):
                    key = f"beat/{other}"
                    beat = self.store.get(key) if self.store.check([key]) else b""
                    if beat and (other not in seen or seen[other][0] != beat):
                        seen[other] = (beat, now)
                    elif other in seen and now - seen[other][1] > self.silent_s:
                        self.end(other, f"silent for {self.silent_s:g} s in the check")
            except RuntimeError as error:  # the store's errors: its end of the connection is gone or does not answer
                if not self.finished:
                    self.end(0, f"its store is gone: {str(error).splitlines()[0][:150]}")
            time.sleep(BEAT_S)

    def end(self, rank: int, why: str) -> None:
        """Name the rank to everybody, then end this process at once: its main thread may hang."""
        if self.finished:
            return
        with suppress(RuntimeError):  # the store may be what is gone
            self.store.set("blame", json.dumps({"rank": rank, "why": why}))
        say("blame", rank=rank, why=why)
        time.sleep(LINGER_S if self.rank == 0 else 0.1)
        os._exit(3)


def main() -> int:
    """Exit status: 0 with a result or without a job; 3 after a blame, 4 after an error of this box, 5 when boxes are
    missing.
    """
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        say("error", text=f"torch cannot be imported: {error}")
        return 4
    say("phase", phase="imported")
    ready, _, _ = select.select([sys.stdin], [], [], IDLE_S)
    line = sys.stdin.readline() if ready else ""
    if not line:
        return 0  # not needed any more, or the kit is gone
    job = json.loads(line)
    os.environ.clear()
    os.environ.update(job["environment"])  # NCCL and gloo read theirs when the first group is made
    cuda = job["backend"] == "nccl"
    try:
        if cuda:
            torch.cuda.set_device(job.get("device", 0))
            started = torch.ones(1, device="cuda") + 1
            if started.item() != 2.0:
                raise RuntimeError("1 + 1 is not 2 on this GPU")
    except RuntimeError as error:
        say("error", text=f"CUDA does not start: {str(error).splitlines()[0]}")
        return 4
    facts = {**job["facts"], **_library_facts(torch, cuda)}
    store, watch = _meet(dist, job, facts)
    if store is None or watch is None:
        return 5
    try:
        result = _measure(torch, dist, job, store, cuda)
    except RuntimeError as error:
        # The other end may be what died: the watch names it, or nobody does.
        watch.join(watch.silent_s + 2)
        say("error", text=str(error).splitlines()[0][:300])
        return 4
    result["facts"] = {str(r): json.loads(store.get(f"here/{r}")) for r in range(job["world"])}
    watch.finished = True
    _part(store, job)
    say("result", **result)
    sys.stdout.flush()
    os._exit(0)  # destroying a process group may wait for ranks that are gone already


def _meet(dist: Any, job: dict[str, Any], facts: dict[str, str]) -> tuple[Any, Watch | None]:
    """The store with all ranks in it, or None after saying who is missing."""
    until = time.monotonic() + float(job["meet_s"])
    rank, world = job["rank"], job["world"]
    try:
        store = dist.TCPStore(
            job["host"], job["port"], None, rank == 0, timedelta(seconds=job["meet_s"]), wait_for_workers=False
        )
        watch = Watch(dist, job)
        watch.store.set(f"beat/{rank}", "0")
        store.set(f"here/{rank}", json.dumps(facts))
        keys = [f"here/{other}" for other in range(world)]
        while not store.check(keys):
            if time.monotonic() > until:
                say("missing", ranks=[other for other in range(world) if not store.check([f"here/{other}"])])
                return None, None
            time.sleep(0.05)
    except RuntimeError as error:
        say("missing", ranks=[0], text=str(error).splitlines()[0][:200])
        return None, None
    store.set_timeout(timedelta(seconds=job["run_s"]))
    watch.start()
    say("phase", phase="met")
    return store, watch


def _part(store: Any, job: dict[str, Any]) -> None:
    """The store goes last."""
    with suppress(RuntimeError):  # rank 0 may have gone: it had everybody's done
        store.set(f"done/{job['rank']}", "1")
        until = time.monotonic() + 3
        keys = [f"done/{other}" for other in range(job["world"])]
        while job["rank"] == 0 and not store.check(keys) and time.monotonic() < until:
            time.sleep(0.02)


def _measure(torch: Any, dist: Any, job: dict[str, Any], store: Any, cuda: bool) -> dict[str, Any]:
    rank, world = job["rank"], job["world"]
    device = "cuda" if cuda else "cpu"
    timeout = timedelta(seconds=job["run_s"])
    group = dist.PrefixStore("group", store)
    dist.init_process_group(job["backend"], store=group, rank=rank, world_size=world, timeout=timeout)
    say("phase", phase="grouped")

    def settle() -> None:
        if cuda:
            torch.cuda.synchronize()

    def slowest(tag: str, seconds: float) -> float:
        """The same number on every rank: the slowest rank's."""
        store.set(f"time/{tag}/{rank}", repr(seconds))
        return max(float(store.get(f"time/{tag}/{other}")) for other in range(world))

    def timed(tag: str, work: Any, rounds: int) -> float:
        dist.barrier()
        settle()
        began = time.perf_counter()
        for _ in range(rounds):
            work()
        settle()
        return slowest(tag, (time.perf_counter() - began) / rounds)

    data = torch.ones(max(1, int(job["bytes"]) // 4), dtype=torch.float32, device=device)
    first = timed("first", lambda: dist.all_reduce(data), 1)
    if not bool((data == world).all()):
        raise RuntimeError(f"the all-reduce of ones is not {world} everywhere")
    rounds = 5 if first < 0.5 else 1
    best = min(timed(f"reduce{turn}", lambda: dist.all_reduce(data), rounds) for turn in range(2))
    share = 2 * (world - 1) / world if world > 1 else 1.0
    gbps = share * int(job["bytes"]) * 8 / best / 1e9
    say("phase", phase="reduced")
    latency = {}
    repeats = 50 if cuda else 20
    for size in LATENCY_BYTES:
        small = torch.ones(size // 4, dtype=torch.float32, device=device)
        timed(f"warm{size}", lambda small=small: dist.all_reduce(small), 5)
        latency[str(size)] = 1e6 * timed(f"latency{size}", lambda small=small: dist.all_reduce(small), repeats)
    result = {"gbps": gbps, "seconds": best, "latency_us": latency, "edges": {}, "transport": _transport()}
    store.set(f"expected/{rank}", repr(float(job["expected_gbps"])))
    # The box with the fewest rails decides: all must come to the same, for what follows they do together.
    expected = min(float(store.get(f"expected/{other}")) for other in range(world))
    result["expected_gbps"] = expected
    if expected and gbps < job["enough"] * expected and world > 1:
        result["edges"] = _edges(torch, dist, data[: max(1, data.numel() // 4)], rank, world, slowest, settle)
    speeds = _probe(torch, device, float(job["probe_s"]))
    store.set(f"speed/{rank}", repr(speeds))
    result["speeds"] = [float(store.get(f"speed/{other}")) for other in range(world)]
    return result


def _edges(torch: Any, dist: Any, data: Any, rank: int, world: int, slowest: Any, settle: Any) -> dict[str, float]:
    """Gb/s of every neighbour pair, one direction at a time: "0>1" and "1>0". Other ranks wait."""
    found = {}
    pairs = [(one, (one + 1) % world) for one in range(world if world > 2 else 1)]
    for near, far in pairs:
        for source, target in ((near, far), (far, near)):
            dist.barrier()
            for turn in range(2):  # the first one connects
                began = time.perf_counter()
                if rank == source:
                    dist.send(data, target)
                elif rank == target:
                    dist.recv(data, source)
                settle()
                took = time.perf_counter() - began if rank in (source, target) else 0.0
                took = slowest(f"edge{source}{target}{turn}", took)
            found[f"{source}>{target}"] = data.numel() * 4 * 8 / took / 1e9
    return found


def _probe(torch: Any, device: str, seconds: float) -> float:
    """TFLOP/s of one matrix product, to compare boxes with each other."""
    size, kind = (4096, torch.bfloat16) if device == "cuda" else (256, torch.float32)
    one = torch.ones(size, size, dtype=kind, device=device)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds or count == 0:
        for _ in range(8):
            one @ one
        if device == "cuda":
            torch.cuda.synchronize()
        count += 8
    return count * 2 * size**3 / (time.perf_counter() - began) / 1e12


def _transport() -> str:
    """What NCCL says it uses, from its own log: IB, Socket, P2P or SHM; "" without a log."""
    try:
        with open(os.environ["NCCL_DEBUG_FILE"], encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            text = file.read()
    except (OSError, KeyError):
        return ""
    words = [word for word in ("NET/IB", "NET/Socket", "P2P", "SHM") if f"via {word}" in text]
    return ", ".join(words)


def _library_facts(torch: Any, cuda: bool) -> dict[str, str]:
    from importlib import metadata

    found = {"torch": str(torch.__version__)}
    with suppress(metadata.PackageNotFoundError):
        found["vllm"] = metadata.version("vllm")
    if cuda:
        found["NCCL"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        found["GPU"] = torch.cuda.get_device_name()
        with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
            paths = sorted({line.split()[-1] for line in maps if "libnccl" in line})
        for path in paths[:1]:
            digest = hashlib.sha256()
            with open(path, "rb") as file:  # noqa: PTH123
                while block := file.read(1 << 20):
                    digest.update(block)
            found["NCCL library"] = digest.hexdigest()[:16]
    return found


if __name__ == "__main__":
    sys.exit(main())
