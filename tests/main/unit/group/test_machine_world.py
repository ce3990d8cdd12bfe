"""The machine under crashes, restarts, pauses, dying engines, lost, delayed and reordered answers.

Safety is asserted inside the world at every step: nobody launches a record that not all accepted, epochs never go
back, none is shown before it is stored, no engine outlives its record. Liveness: faults over, all serve one record.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.main.unit.group.world import World

MEMBER = st.integers(0, 3)
EVENT = st.one_of(
    st.tuples(st.just("ask"), MEMBER, MEMBER),
    st.tuples(st.just("ask"), MEMBER, MEMBER),
    st.tuples(st.just("deliver"), st.integers(0, 30), MEMBER),
    st.tuples(st.just("deliver"), st.just(0), MEMBER),
    st.tuples(st.just("round"), st.integers(1, 5), MEMBER),
    st.tuples(st.just("round"), st.integers(1, 5), MEMBER),
    st.tuples(st.just("lose"), st.integers(0, 30), MEMBER),
    st.tuples(st.just("wait"), st.integers(1, 25), MEMBER),
    st.tuples(st.just("crash"), MEMBER, MEMBER),
    st.tuples(st.just("start"), MEMBER, MEMBER),
    st.tuples(st.just("engine"), MEMBER, MEMBER),
    st.tuples(st.just("pause"), MEMBER, MEMBER),
    st.tuples(st.just("resume"), MEMBER, MEMBER),
)


def play(world: World, events: list[tuple[str, int, int]]) -> None:
    for kind, first, second in events:
        one, two = first % world.size, second % world.size
        world.now += 0.1
        if kind == "ask":
            world.ask(one, two)
        elif kind in ("deliver", "lose"):
            if first < len(world.flying):
                world.deliver(first) if kind == "deliver" else world.flying.pop(first)
        elif kind == "round":
            world.calm_round(first)
        elif kind == "wait":
            world.now += first
            world.tick(two)
        elif kind == "crash":
            world.crash(one)
        elif kind == "start":
            world.start(one)
        elif kind == "engine":
            world.engine_dies(one)
            world.tick(one)
        else:
            world.members[one].paused = kind == "pause"
            world.tick(one)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_members_that_nothing_disturbs_serve_soon(size: int) -> None:
    world = World(size)
    world.calm(4)
    assert world.serving()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(2, 4), st.lists(EVENT, max_size=80))
@example(2, [("round", 1, 0), ("round", 5, 0), ("pause", 0, 0), ("wait", 10, 0)])  # a pause that nobody noticed yet
def test_safe_at_every_step_and_serving_once_faults_stop(size: int, events: list[tuple[str, int, int]]) -> None:
    world = World(size)
    play(world, events)
    world.calm(60)
    assert world.serving(), [member.own for member in world.members]


def test_a_dead_engine_brings_all_into_a_new_generation() -> None:
    world = World(4)
    world.calm(4)
    first = world.members[0].own.record
    world.engine_dies(2)
    world.calm(6)
    second = world.members[0].own.record
    assert world.serving()
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch
    assert second.seats[2].n == first.seats[2].n + 1


def test_a_killed_kit_comes_back_with_its_epoch() -> None:
    world = World(3)
    world.calm(4)
    world.crash(0)
    world.calm(8)
    assert world.serving()
    record = world.members[1].own.record
    assert record is not None
    assert record.epoch >= 2
