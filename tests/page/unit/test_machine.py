"""What a box looks at: /proc, the kernel's log, how far vLLM's start is; and the events that keep pages live."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from entrypoint.status import live as module
from entrypoint.status.live import Live
from entrypoint.status.machine import ALARM_S, Machine
from entrypoint.status.plots import nice, spark
from entrypoint.status.progress import progress
from preflight.facts.kernel import KernelLog, alarm
from preflight.facts.usage import Usage, transfers, usage


@pytest.mark.parametrize(
    ("line", "about"),
    [
        (
            "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x",
            "the GPU driver is out of memory",
        ),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! out of memory", "the GPU driver is out of memory"),
        ("NVRM: Xid (PCI:000f:01:00): 43, pid=7, name=python3", "the GPU reports a fault"),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=VLLM::Worker",
            "the kernel ended a process for want of memory",
        ),
        ("Out of memory: Killed process 7 (VLLM::Worker)", "the kernel ended a process for want of memory"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", ""),
        ("usb 1-1: new high-speed device", ""),
    ],
)
def test_which_lines_of_the_kernel_alarm(line: str, about: str) -> None:
    assert alarm(line) == about


def test_alarms_are_counted_and_forgotten(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert not machine.hear_kernel(["usb 1-1: new device"], 0.0)
    assert machine.hear_kernel(["NVRM: x Out of memory [NV_ERR_NO_MEMORY]"] * 3, 1.0)
    assert [(one.what, one.count) for one in machine.alarms.values()] == [("the GPU driver is out of memory", 3)]
    machine.hear_kernel([], ALARM_S)
    assert machine.alarms
    machine.hear_kernel([], ALARM_S + 2)
    assert not machine.alarms


def test_a_kernel_log_that_is_not_there_says_why(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "dev/kmsg")
    assert "No such file" in log.error
    assert log.lines() == []


def test_the_kernel_log_begins_now_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;before\n")
    log = KernelLog(path)
    assert log.lines() == []
    with path.open("a") as file:
        file.write("4,2,2,-;NVRM: Xid (PCI): 43\n")
    assert log.lines() == ["NVRM: Xid (PCI): 43"]
    log.close()


def test_this_machine_is_read_and_an_empty_tree_is_no_error(tmp_path: Path) -> None:
    found = usage(Path("/"), [os.getpid(), 4_000_000], [Path("/"), Path("/nowhere")])
    assert found.meminfo["MemTotal"] > found.meminfo["MemFree"] > 0
    assert found.anonymous[os.getpid()] > 0
    assert found.anonymous[4_000_000] == 0
    assert 0 < found.cpu[0] < found.cpu[1]
    assert list(found.disks) == ["/"]
    assert usage(tmp_path, [], []).meminfo == {}


def test_partitions_and_loops_are_no_disks() -> None:
    line = " {} 0 {} 10 0 80 5 20 0 160 5 0 10 10"
    text = "\n".join(line.format(at, name) for at, name in enumerate(["nvme0n1", "nvme0n1p1", "loop0", "sda", "sda1"]))
    assert transfers(text) == {"nvme0n1": (40960, 81920), "sda": (40960, 81920)}


def test_rates_are_differences_between_two_looks(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.load()["cpu"] is None
    for at, ticks, read in ((0.0, (10, 100), 0), (10.0, (60, 200), 10_000)):
        machine.take(Usage(cpu=ticks, transfers={"sda": (read, 0)}), (), frozenset(), at)
    assert machine.load()["cpu"] == 0.5
    assert machine.load()["transfers"] == {"sda": {"read": 1000, "written": 0}}


@pytest.mark.parametrize(
    ("lines", "phase", "share"),
    [
        ((), "meeting the other ranks", None),
        (("Loading safetensors checkpoint shards:  43% Completed | 3/7 [00:10<00:13]",), "loading weights", 0.43),
        (("Loading weights 3/7",), "loading weights", 3 / 7),
        (("Capturing CUDA graphs (decode, FULL):  12%|#         | 3/25",), "capturing graphs", 0.12),
        (("Loading weights took 812.20 seconds",), "loading weights", None),
        (("Loading weights 2026/11/29",), "loading weights", None),
        (("Loading weights 40%", "some other line"), "loading weights", 0.4),
    ],
)
def test_how_far_the_start_is(lines: tuple[str, ...], phase: str, share: float | None) -> None:
    assert progress(lines) == (phase, share if share is None else pytest.approx(share))


def test_axes_are_round_and_holes_are_holes() -> None:
    assert [nice(value) for value in (0, 0.3, 1, 17, 120.5, 5000)] == [1.0, 0.5, 1, 20, 200, 5000]
    text = str(spark([[(30.0, 1.0), (20.0, None), (10.0, 2.0), (0.0, 3.0)]], 60.0, 5.0, 15.0, 'a "<b>"'))
    assert text.count("<polyline") == 1
    assert text.count("<circle") == 1
    assert "<b>" not in text


def test_a_reader_gets_everything_first_and_then_only_what_changed() -> None:
    html = {"top": "a", "s-boot": "b"}

    async def render() -> tuple[str, dict[str, str], float]:
        return "title", dict(html), 0.01

    async def run() -> list[dict[str, object]]:
        live = Live(render)
        got = []
        stream = live.subscribe()
        async for text in stream:
            if not text.startswith("event: sections"):
                continue
            got.append(json.loads(text.split("data: ", 1)[1]))
            if len(got) == 2:
                break
            html["top"] = "c"
        await stream.aclose()  # type: ignore[attr-defined]
        assert live.readers == 0
        return got

    first, second = asyncio.run(run())
    assert first["html"] == {"top": "a", "s-boot": "b"}
    assert second["html"] == {"top": "c"}


def test_nothing_is_rendered_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = 0

    async def render() -> tuple[str, dict[str, str], float]:
        nonlocal rendered
        rendered += 1
        return "title", {"top": "same"}, 0.01

    async def run() -> None:
        monkeypatch.setattr(module, "SILENT_S", 0.05)
        live = Live(render)
        stream = live.subscribe()
        told = [await anext(stream) for _ in range(3)]
        assert told[-1] == ": still here\n\n"
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        before = rendered
        await asyncio.sleep(0.1)
        assert rendered == before

    asyncio.run(run())
