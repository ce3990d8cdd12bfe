"""The check between real processes: torch's gloo over loopback, healthy and with one rank that fails."""

import asyncio
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fabric.round import WORKER, Job, Outcome, run_round, start
from fabric.verdict import rows

NAMES = ["alpha", "beta", "gamma"]
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def job(world: int) -> Job:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Job(0, world, "127.0.0.1", port, "gloo", 2 << 20, {"kit": "1"}, meet_s=60, silent_s=3, probe_s=0.01)


async def together(first: Job, *changes: dict[str, object]) -> list[Outcome]:
    jobs = [replace(first, rank=rank, **change) for rank, change in enumerate(changes)]  # type: ignore[arg-type]
    return list(await asyncio.gather(*(run_round(sys.executable, one, ENVIRONMENT, 120) for one in jobs)))


def test_healthy_ranks_measure_the_same_and_a_difference_is_named() -> None:
    found = asyncio.run(together(job(2), {}, {"facts": {"kit": "2"}}))
    assert all(one.complete for one in found), found
    assert found[0].gbps == found[1].gbps > 0
    assert set(found[0].latency_us) == {"8", "8192", "65536"}
    said = rows(found[0], NAMES[:2], 0.0, 0)
    assert any(row.name == "boxes differ" and "kit: 1 on alpha; 2 on beta" in row.seen for row in said)


def test_a_low_bandwidth_is_looked_at_pair_by_pair() -> None:
    found = asyncio.run(together(replace(job(2), expected_gbps=1e6), {}, {}))
    assert set(found[0].edges) == {"0>1", "1>0"}
    assert all(value > 0 for value in found[0].edges.values())


def test_boxes_that_expect_different_bandwidths_go_by_the_least() -> None:
    """One box has one rail, the others two: had each gone by its own, some would measure pairs and the rest not."""
    quick = asyncio.run(together(job(2), {"expected_gbps": 1e6}, {"expected_gbps": 1e-6}))
    assert [(one.complete, one.expected_gbps, dict(one.edges)) for one in quick] == [(True, 1e-6, {})] * 2


def test_a_box_that_never_comes_is_named() -> None:
    found = asyncio.run(together(replace(job(3), meet_s=12.0), {}, {}))
    assert found[0].missing == (2,)
    assert "gamma did not arrive" in rows(found[0], NAMES, 0.0, 0)[0].seen


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_stops_is_named_and_nobody_hangs(number: signal.Signals) -> None:
    async def run() -> tuple[list[Outcome], float]:
        # Work that outlasts the test: many large reductions; the signal comes when all have met.
        base = replace(job(3), bytes=192 << 20, run_s=60.0)
        met: list[int] = []
        hit = 0.0
        tasks = [
            asyncio.ensure_future(
                run_round(
                    sys.executable,
                    replace(base, rank=rank),
                    ENVIRONMENT,
                    45 if rank == 1 else 120,
                    lambda phase: met.append(1) if phase == "grouped" else None,
                )
            )
            for rank in range(3)
        ]
        while len(met) < 3:
            await asyncio.sleep(0.02)
        victim = _workers()[1]
        os.kill(victim, number)
        hit = time.monotonic()
        others = [await tasks[0], await tasks[2]]
        took = time.monotonic() - hit
        own = await tasks[1]  # the kit beside it says what happened, without waiting for its deadline
        assert ("was stopped" if number == signal.SIGSTOP else "signal 9") in own.error, own
        return others, took

    others, took = asyncio.run(run())
    for one in others:
        assert 1 in one.blamed, one
    assert took < 25


def test_a_worker_started_early_takes_the_job_with_its_environment() -> None:
    async def run() -> list[Outcome]:
        bare = {name: text for name, text in ENVIRONMENT.items() if name != "GLOO_SOCKET_IFNAME"}
        early = [await start(sys.executable, bare) for _ in range(2)]
        for one in early:
            assert one.stdout is not None
            assert b"imported" in await one.stdout.readline()
        first = job(2)
        began = time.monotonic()
        rounds = (
            run_round(sys.executable, replace(first, rank=rank), ENVIRONMENT, 60, worker=early[rank])
            for rank in range(2)
        )
        found = list(await asyncio.gather(*rounds))
        assert time.monotonic() - began < 30
        assert all(one.returncode is not None for one in early)
        return found

    assert all(one.complete for one in asyncio.run(run()))


def test_a_worker_without_a_job_ends_by_itself_and_a_dead_one_is_replaced() -> None:
    async def run() -> Outcome:
        idle = await start(sys.executable, ENVIRONMENT)
        assert idle.stdin is not None
        idle.stdin.close()
        assert await idle.wait() == 0
        return await run_round(sys.executable, job(1), ENVIRONMENT, 60, worker=idle)

    assert asyncio.run(run()).phase == "reduced"


def test_a_box_whose_kit_says_that_its_part_is_over_is_not_waited_for() -> None:
    """torch is broken on one box, say: its worker never meets anybody, and its kit tells so."""
    began = time.monotonic()
    found = asyncio.run(run_round(sys.executable, job(2), ENVIRONMENT, 120, ended=lambda: [1]))
    assert time.monotonic() - began < 20
    assert "ended early" in found.blamed[1]


def _workers() -> list[int]:
    """This process's worker children, by pid: the order in which they were started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                command = folder.joinpath("cmdline").read_text()
            except OSError:
                continue  # it has ended meanwhile
            if int(parent) == os.getpid() and str(WORKER) in command:
                found.append(int(folder.name))
    return sorted(found)


def test_nothing_is_left_behind() -> None:
    assert _workers() == []
