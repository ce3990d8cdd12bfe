"""The memory picture: every byte of MemTotal has a name, whatever the sources say; the trend warns before the cliff."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.status.memory import Held, Worker, planned, segments, trend, workers
from tests.page import scenes

GIB = scenes.GIB
SIZES = st.integers(0, 200 * GIB)
FIELDS = ("MemFree", "AnonPages", "Shmem", "Cached", "Buffers", "SReclaimable", "SUnreclaim", "PageTables", "Percpu")


def sizes(held: Held = scenes.HELD, budget: dict[str, int] | None = None) -> dict[str, int]:
    return {one.name: one.size for one in segments(held, scenes.BUDGET if budget is None else budget)}


def test_a_gb10_that_serves() -> None:
    found = sizes()
    assert found["weights"] == 47 * GIB
    assert found["KV cache"] == 26 * GIB
    assert found["graphs and activations"] == 7 * GIB
    assert found["other torch"] == 2 * GIB
    assert found["NCCL, CUDA and JIT"] == 4 * GIB
    assert found["free"] == 3 * GIB
    assert sum(found.values()) == 120 * GIB
    assert found["driver and unaccounted"] == 120 * GIB - sum(
        size for name, size in found.items() if name != "driver and unaccounted"
    )


def test_without_figures_of_nvml_the_rest_says_what_it_holds() -> None:
    found = sizes(replace(scenes.HELD, driver=None))
    assert "NCCL, CUDA and JIT" not in found
    assert "GPU driver, CUDA, NCCL, JIT and unaccounted" in found


def test_while_weights_load_nothing_is_called_kv() -> None:
    found = sizes(replace(scenes.HELD, workers=(Worker(7, 20 * GIB, 19 * GIB),), driver=None))
    assert found["weights"] == 19 * GIB
    assert "KV cache" not in found


def test_a_gpu_with_memory_of_its_own_is_no_part_of_the_host_s() -> None:
    found = sizes(replace(scenes.HELD, unified=False))
    assert "weights" not in found
    assert sum(found.values()) == 120 * GIB


@given(
    st.dictionaries(st.sampled_from(FIELDS), SIZES),
    st.integers(1, 200 * GIB),
    st.lists(st.builds(Worker, st.integers(1, 9), SIZES, SIZES), max_size=2, unique_by=lambda one: one.pid),
    st.one_of(st.none(), st.dictionaries(st.integers(1, 9), st.one_of(st.none(), SIZES))),
    SIZES,
    SIZES,
    st.booleans(),
    st.dictionaries(st.sampled_from(list(scenes.BUDGET)), SIZES),
)
def test_whatever_the_sources_say_the_parts_sum_to_the_total(
    info: dict[str, int],
    total: int,
    found: list[Worker],
    driver: dict[int, int | None] | None,
    engine: int,
    kit: int,
    unified: bool,
    budget: dict[str, int],
) -> None:
    held = Held({**info, "MemTotal": total}, tuple(found), driver, engine, kit, unified)
    parts = segments(held, budget)
    assert sum(one.size for one in parts) == total
    assert all(one.size > 0 for one in parts)
    assert len({one.name for one in parts}) == len(parts)


def test_the_plan_closes_too() -> None:
    parts = planned(scenes.BUDGET, 120 * GIB)
    assert sum(one.size for one in parts) == 120 * GIB
    assert {one.name: one.size for one in parts}["left over"] == 120 * GIB - sum(scenes.BUDGET.values())
    assert sum(one.size for one in planned({**scenes.BUDGET, "a new item": GIB}, 120 * GIB)) == 120 * GIB


def falling(per_hour: float, start: int = 10 * GIB, seconds: int = 600) -> list[tuple[float, int]]:
    return [(float(at), round(start - per_hour * at / 3600)) for at in range(0, seconds, 10)]


def test_a_cliff_that_is_near_is_warned_of() -> None:
    found = trend(falling(20 * GIB))
    assert found.warning.startswith("memory falls by 20")
    assert "1GiB is reached in" in found.warning
    assert found.slope == pytest.approx(-20 * GIB, rel=0.01)


def test_a_slow_leak_a_step_and_a_short_look_are_no_cliff() -> None:
    assert trend(falling(2 * GIB)).warning == ""
    step = [(float(at), (10 if at < 30 else 5) * GIB) for at in range(0, 600, 10)]
    assert trend(step).warning == ""
    assert trend(falling(500 * GIB, seconds=60)).slope is None
    assert trend([]).warning == ""


def test_one_odd_sample_moves_nothing() -> None:
    seen = falling(0)
    seen[-2] = (seen[-2][0], 2 * GIB)
    assert trend(seen).warning == ""


def test_at_the_edge_the_warning_does_not_wait_for_a_slope() -> None:
    assert "about to stall" in trend([(0.0, GIB // 2)]).warning


def test_files_of_dead_processes_are_skipped() -> None:
    def told(pid: object, reserved: object = 5, allocated: object = 4) -> dict[str, object]:
        return {"pid": pid, "reserved_bytes.all.current": reserved, "allocated_bytes.all.current": allocated}

    found = workers([told(7), told(8), told("7"), told(7, None), {}, told(9, 6)], frozenset({7, 9}))
    assert found == (Worker(7, 5, 4), Worker(9, 6, 4))
