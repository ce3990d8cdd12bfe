"""The memory cap and trace: what the environment asks for, the counters' file, one report per out-of-memory."""

import json
import threading
import time
from pathlib import Path

import pytest
import torch
from vllm import glm53_memory as memory


def test_nothing_is_asked_for_by_default() -> None:
    assert memory.wish({}) == memory.Wish(None, None, 100000, None, 15.0)
    assert memory.wish({"TORCH_MEM_FRACTION": "", "TORCH_MEM_STATS_DIR": ""}) == memory.wish({})


def test_everything_is_read() -> None:
    asked = {
        "TORCH_MEM_FRACTION": "0.92",
        "TORCH_MEM_TRACE_DIR": "/t",
        "TORCH_MEM_TRACE_ENTRIES": "5",
        "TORCH_MEM_STATS_DIR": "/s",
        "TORCH_MEM_STATS_INTERVAL": "2.5",
    }
    assert memory.wish(asked) == memory.Wish(0.92, Path("/t"), 5, Path("/s"), 2.5)


@pytest.mark.parametrize("text", ["0", "1.2", "-1", "nan", "92%"])
def test_a_bad_share_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match=r"TORCH_MEM_FRACTION=.*at most 1"):
        memory.wish({"TORCH_MEM_FRACTION": text})


def test_the_cap_is_set_on_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU here: what torch.cuda is asked for is recorded."""
    asked: list[object] = []
    monkeypatch.setenv("TORCH_MEM_FRACTION", "0.9")
    monkeypatch.delenv("TORCH_MEM_STATS_DIR", raising=False)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: asked.append(given))
    memory.arm(torch.device("cuda:0"), rank=1)
    assert asked == [(0.9, torch.device("cuda:0"))]


def test_the_counters_are_whole_whenever_they_are_read(tmp_path: Path) -> None:
    numbers = iter(range(10_000))
    writer = memory.StatsWriter(
        tmp_path / "made", 3, 0.001, lambda: {"num_ooms": next(numbers), "reserved_bytes.all.peak": 7, "other": 1}
    )
    writer.write()
    threading.Thread(target=writer.run, daemon=True).start()
    seen = set()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        content = json.loads((tmp_path / "made" / "memory-rank3.json").read_text())
        assert content["rank"] == 3
        assert content["reserved_bytes.all.peak"] == 7
        assert "other" not in content
        seen.add(content["num_ooms"])
    assert len(seen) > 10


def test_a_folder_that_cannot_be_written_ends_the_writer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = memory.StatsWriter(tmp_path / "file" / "below", 0, 0.01, lambda: {})
    writer.run()  # returns: it does not take the worker down, and does not try for ever


def test_an_out_of_memory_is_reported_once(tmp_path: Path) -> None:
    snapshots: list[int] = []

    def taken() -> dict[str, list[int]]:
        snapshots.append(1)
        return {"segments": []}

    observer = memory.OutOfMemory(tmp_path / "trace", 2, taken)
    observer(0, 1 << 30, 0, 1 << 20)
    observer(0, 1 << 30, 0, 1 << 20)
    assert len(snapshots) == 1
    assert json.loads((tmp_path / "trace" / "oom-rank2.json").read_text()) == {"segments": []}
