"""Six members under hypothesis' own choice of faults: safe at every step, and serving once the faults stop."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.main.unit.group.world import World

SIZE = 6
MEMBER = st.integers(0, SIZE - 1)


class Six(RuleBasedStateMachine):
    """The world asserts safety inside; teardown asserts liveness."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SIZE)

    @rule(asker=MEMBER, asked=MEMBER)
    def ask(self, asker: int, asked: int) -> None:
        self.world.now += 0.1
        self.world.ask(asker, asked)

    @rule(place=st.integers(0, 40))
    def deliver(self, place: int) -> None:
        self.world.now += 0.1
        if place < len(self.world.flying):
            self.world.deliver(place)

    @rule(place=st.integers(0, 40))
    def lose(self, place: int) -> None:
        if place < len(self.world.flying):
            self.world.flying.pop(place)

    @rule(count=st.integers(1, 5))
    def talk(self, count: int) -> None:
        self.world.calm_round(count)

    @rule(seconds=st.integers(1, 25), member=MEMBER)
    def wait(self, seconds: int, member: int) -> None:
        self.world.now += seconds
        self.world.tick(member)

    @rule(member=MEMBER)
    def crash(self, member: int) -> None:
        self.world.crash(member)

    @rule(member=MEMBER)
    def start_again(self, member: int) -> None:
        self.world.start(member)

    @rule(member=MEMBER)
    def engine_dies(self, member: int) -> None:
        self.world.engine_dies(member)
        self.world.tick(member)

    @rule(member=MEMBER, stopped=st.booleans())
    def pause(self, member: int, stopped: bool) -> None:
        self.world.members[member].paused = stopped
        self.world.tick(member)

    def teardown(self) -> None:
        self.world.calm(80)
        assert self.world.serving(), [member.own for member in self.world.members]


TestSix = Six.TestCase
TestSix.settings = settings(
    max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
