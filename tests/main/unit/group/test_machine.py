"""The generation protocol, rule by rule; docs/generations.md is the table these tests follow."""

from __future__ import annotations

from dataclasses import replace

from group.machine import Check, FindPorts, Formation, Launch, Limits, Moment, Own, Persist, Sight, Stop, step
from group.view import Record, Seat, View

LIMITS = Limits(accept_s=60, join_s=60, lost_s=30)
HEAD, WORKER = "10.0.0.9", "10.0.0.10"
FORMATION = Formation(HEAD, (HEAD, WORKER), {HEAD: HEAD, WORKER: WORKER}, "plan")
RECORD = Record("ab", 5, (Seat(0, HEAD, HEAD, "aa", 0), Seat(1, WORKER, WORKER, "bb", 0)), "plan", 20010, 20011)


def view(lan: str = HEAD, state: str = "ready", **fields: object) -> View:
    base = View(lan, 8082, "aa" if lan == HEAD else "bb", 0, 1, state, 4, HEAD, "plan")  # type: ignore[arg-type]
    return replace(base, **fields)  # type: ignore[arg-type]


def sees(seen: View | None, began: float = 11.0, **fields: float) -> dict[str, Sight]:
    return {seen.lan if seen else HEAD: Sight(seen, began, **fields)}


def head(**fields: object) -> Own:
    own = Own(HEAD, "aa", state="ready", epoch=4, promised=4, changed_at=10, entered_at=10, ticked_at=11)
    return replace(own, **fields)  # type: ignore[arg-type]


def worker(**fields: object) -> Own:
    return replace(head(), lan=WORKER, instance="bb", **fields)  # type: ignore[arg-type]


def running(own: Own) -> Own:
    return replace(own, state="running", record=RECORD, epoch=5, promised=5, checked=True, committed=True)


def ends(own: Own, seen: dict[str, Sight], now: float = 12.0, **fields: object) -> str:
    """The reason for the stop, or "" when the member goes on."""
    after, actions = step(own, Moment(now, seen, FORMATION, **fields), LIMITS)  # type: ignore[arg-type]
    stops = [action.reason for action in actions if isinstance(action, Stop)]
    assert bool(stops) == (after.state == "stopping")
    return stops[0] if stops else ""


# -- coming together


def test_without_a_formation_nobody_is_ready() -> None:
    own, actions = step(Own(HEAD, "aa"), Moment(1.0), LIMITS)
    assert (own.state, actions) == ("joining", ())


def test_a_formation_makes_ready_and_its_loss_unmakes_it() -> None:
    own, _ = step(Own(HEAD, "aa"), Moment(1.0, formation=FORMATION), LIMITS)
    assert own.state == "ready"
    own, _ = step(own, Moment(2.0), LIMITS)
    assert own.state == "joining"


def test_the_head_asks_for_ports_then_proposes_with_the_next_epoch_stored_first() -> None:
    seen = sees(view(WORKER))
    own, actions = step(head(), Moment(12.0, seen, FORMATION), LIMITS)
    assert (own.state, actions) == ("ready", (FindPorts(),))
    own, actions = step(own, Moment(12.0, seen, FORMATION, "cd", (20010, 20011)), LIMITS)
    assert own.record is not None
    assert (own.state, own.record.id, own.record.epoch) == ("accepted", "cd", 5)
    assert own.record.seats == RECORD.seats
    assert actions == (Persist(5), Check(own.record))


def test_the_head_does_not_propose_on_a_view_older_than_its_own_last_change() -> None:
    seen = sees(view(WORKER), began=9.9)
    assert step(head(), Moment(12.0, seen, FORMATION, "cd", (20010, 20011)), LIMITS)[1] == ()


def test_the_head_waits_for_a_member_that_elects_another_head_or_has_another_plan() -> None:
    for other in (view(WORKER, head=WORKER), view(WORKER, plan_hash="other"), view(WORKER, state="joining")):
        assert step(head(), Moment(12.0, sees(other), FORMATION, "cd", (20010, 20011)), LIMITS)[0].state == "ready"


def proposal(**fields: object) -> dict[str, Sight]:
    return sees(view(HEAD, state="accepted", epoch=5, record=replace(RECORD, **fields)))  # type: ignore[arg-type]


def test_a_worker_accepts_and_stores_the_epoch() -> None:
    own, actions = step(worker(), Moment(12.0, proposal(), FORMATION), LIMITS)
    assert (own.state, own.promised) == ("accepted", 5)
    assert Persist(5) in actions
    assert Check(RECORD) in actions


def test_a_worker_does_not_accept_what_is_not_meant_for_it() -> None:
    stale_me = (RECORD.seats[0], replace(RECORD.seats[1], n=1))
    stale_head = (replace(RECORD.seats[0], n=1), RECORD.seats[1])
    reordered = (replace(RECORD.seats[1], rank=0), replace(RECORD.seats[0], rank=1))
    for fields in (
        {"seats": stale_me},
        {"seats": stale_head},
        {"seats": reordered},
        {"plan_hash": "other"},
        {"epoch": 4},
    ):
        assert step(worker(), Moment(12.0, proposal(**fields), FORMATION), LIMITS)[0].state == "ready", fields


def test_having_accepted_it_takes_nothing_else_without_a_new_incarnation() -> None:
    own, _ = step(worker(), Moment(12.0, proposal(), FORMATION), LIMITS)
    other = sees(view(HEAD, state="accepted", epoch=6, record=replace(RECORD, id="ff", epoch=6)), began=13)
    own, _ = step(own, Moment(14.0, other, FORMATION), LIMITS)
    assert own.state == "stopping"
    own, _ = step(own, Moment(15.0, other, FORMATION, gone=True), LIMITS)
    assert (own.state, own.n, own.record) == ("joining", 1, None)


# -- commit


def accepted(own: Own) -> Own:
    return replace(running(own), state="accepted", committed=False)


def test_the_head_commits_when_all_have_accepted_and_checked() -> None:
    half = sees(view(WORKER, state="accepted", record=RECORD, epoch=5))
    assert step(accepted(head()), Moment(12.0, half, FORMATION), LIMITS)[0].state == "accepted"
    whole = sees(view(WORKER, state="accepted", record=RECORD, epoch=5, checked=True))
    own, actions = step(accepted(head()), Moment(12.0, whole, FORMATION), LIMITS)
    assert own.committed
    assert actions == (Launch(RECORD),)


def test_a_worker_launches_only_on_a_commit_it_fetched_itself() -> None:
    uncommitted = sees(view(HEAD, state="accepted", record=RECORD, epoch=5, checked=True))
    assert step(accepted(worker()), Moment(12.0, uncommitted, FORMATION), LIMITS)[1] == ()
    committed = sees(view(HEAD, state="launching", record=RECORD, epoch=5, checked=True, committed=True))
    assert step(accepted(worker()), Moment(12.0, committed, FORMATION), LIMITS)[1] == (Launch(RECORD),)
    stale = sees(view(HEAD, state="launching", record=RECORD, epoch=5, checked=True, committed=True), began=9.0)
    assert step(accepted(worker()), Moment(12.0, stale, FORMATION), LIMITS)[1] == ()


def test_nobody_launches_before_its_own_fabric_check() -> None:
    committed = sees(view(HEAD, state="launching", record=RECORD, epoch=5, checked=True, committed=True))
    own = replace(accepted(worker()), checked=False)
    assert step(own, Moment(12.0, committed, FORMATION), LIMITS)[1] == ()
    own, actions = step(own, Moment(12.0, committed, FORMATION, checked=RECORD.id), LIMITS)
    assert own.checked
    assert actions == ()  # the commit was asked for before this change: ask once more


# -- the ends


def test_the_ends_of_a_generation() -> None:
    own = running(worker())
    good = view(HEAD, state="running", record=RECORD, epoch=5)
    assert ends(own, sees(good)) == ""
    assert "started again" in ends(own, sees(replace(good, n=1)))
    assert "started again" in ends(own, sees(replace(good, instance="cc")))
    assert "leaving" in ends(own, sees(replace(good, state="leaving")))
    assert "refused" in ends(own, sees(replace(good, state="refused")))
    assert "stopping" in ends(own, sees(replace(good, state="stopping")))
    assert "epoch 6" in ends(own, sees(replace(good, epoch=6)))
    assert "another generation" in ends(own, sees(replace(good, record=replace(RECORD, id="ff"))))
    assert "the engine" in ends(own, sees(good), engine="exited")
    assert "told to end" in ends(own, sees(good), leaving=True)
    assert "refuses" in ends(own, sees(good), refused=True)
    assert "its kit is gone" in ends(own, sees(good, refused_began=11.5))


def test_old_news_end_nothing() -> None:
    own = running(worker())
    assert ends(own, sees(view(HEAD, n=1), began=9.0)) == ""
    assert ends(own, sees(view(HEAD, state="running", record=RECORD), refused_began=9.0)) == ""


def test_silence_alone_ends_nothing() -> None:
    own = replace(running(worker()), together=True)
    now = 12.0
    for _ in range(600):
        now += 1
        own, actions = step(own, Moment(now, {}, FORMATION), LIMITS)
        assert actions == ()
    assert own.state == "running"


def test_a_stranger_ends_nothing_and_its_epoch_is_not_taken_over_meanwhile() -> None:
    own = running(worker())
    stranger = {"10.0.0.77": Sight(view("10.0.0.77", epoch=99), 11.0)}
    after, actions = step(own, Moment(12.0, stranger, FORMATION), LIMITS)
    assert (after.state, after.epoch, actions) == ("running", 5, ())


def test_not_all_running_within_join_s_ends_it() -> None:
    own = running(worker())
    assert (
        ends(replace(own, ticked_at=70), {}, now=71.0) == "not all boxes started their engine within 60s of the commit"
    )
    assert ends(replace(own, ticked_at=70, together=True), {}, now=71.0) == ""


def test_no_commit_within_its_time_ends_it() -> None:
    assert ends(replace(accepted(worker()), ticked_at=70), {}, now=71.0) == "no commit within 60s"


def test_a_long_pause_stops_first_and_a_short_one_resumes() -> None:
    own = replace(running(worker()), together=True, ticked_at=12.0)
    assert ends(own, {}, now=41.0) == ""
    assert "paused" in ends(own, {}, now=43.0)


def test_stopping_waits_until_the_engine_is_confirmed_gone() -> None:
    own = replace(running(worker()), state="stopping")
    assert step(own, Moment(12.0), LIMITS)[0].state == "stopping"
    after = step(own, Moment(12.0, gone=True), LIMITS)[0]
    assert (after.state, after.n, after.record, after.committed) == ("joining", 1, None, False)
    assert step(own, Moment(12.0, gone=True, leaving=True), LIMITS)[0].state == "leaving"


def test_a_refusal_is_a_state_and_ends_with_its_cause() -> None:
    own, _ = step(head(), Moment(12.0, formation=FORMATION, refused=True), LIMITS)
    assert own.state == "refused"
    own, _ = step(own, Moment(13.0, formation=FORMATION), LIMITS)
    assert own.state == "ready"


def test_epochs_are_learnt_from_all_while_free() -> None:
    own, actions = step(head(), Moment(12.0, sees(view(WORKER, epoch=9)), FORMATION), LIMITS)
    assert (own.epoch, actions[0]) == (9, Persist(9))
