from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool import roster as rosters
from coordinator.pool.events import SessionId
from coordinator.pool.roster import MOST_MERIT, MOST_REMEMBERED, MOST_TASKS, Roster, Session


def enter(roster: Roster, worker: str, credit: int = 1, speed: float = 0.0) -> Session:
    return roster.enter(SessionId(worker, "s"), credit, speed, 0.0)


def measure(roster: Roster, session: Session, speed: float) -> None:
    session.pace.observe(speed, 1.0)
    roster.reweigh(session)


def test_shares_follow_measured_speeds_and_newcomers_count_as_average() -> None:
    roster = Roster()
    slow, fast, new = enter(roster, "a"), enter(roster, "b"), enter(roster, "c", speed=1e12)
    assert [roster.share(s) for s in (slow, fast, new)] == pytest.approx([1 / 3] * 3)
    measure(roster, slow, 100.0)
    measure(roster, fast, 300.0)
    assert [roster.share(s) for s in (slow, fast, new)] == pytest.approx([1 / 6, 1 / 2, 1 / 3])


def test_who_pauses_or_leaves_has_no_share_of_the_rest() -> None:
    roster = Roster()
    one, two = enter(roster, "a"), enter(roster, "b")
    measure(roster, one, 100.0)
    measure(roster, two, 100.0)
    roster.set_credit(two, 0)
    assert roster.share(one) == 1.0
    assert set(roster.eligible) == {"a"}
    roster.set_credit(two, 3)
    assert roster.share(one) == 0.5
    roster.leave(two, 1.0)
    assert roster.share(one) == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.floats(1e-3, 1e9)), max_size=40
    )
)
def test_shares_add_up_to_one_after_any_history(steps: list[tuple[str, int, float]]) -> None:
    roster = Roster()
    for worker, credit, speed in steps:
        session = roster.sessions.get(SessionId(worker, "s")) or enter(roster, worker)
        roster.set_credit(session, credit)
        measure(roster, session, speed)
    takers = [session for session in roster.sessions.values() if session.credit]
    assert len(roster.eligible) == len(takers)
    if takers:
        assert sum(roster.share(session) for session in takers) == pytest.approx(1.0, rel=1e-3)


def test_a_worker_is_eligible_while_one_of_its_sessions_takes_work() -> None:
    roster = Roster()
    one = roster.enter(SessionId("a", "1"), 1, 0.0, 0.0)
    two = roster.enter(SessionId("a", "2"), 1, 0.0, 0.0)
    roster.set_credit(one, 0)
    assert set(roster.eligible) == {"a"}
    roster.leave(two, 1.0)
    assert not roster.eligible


def test_who_rests_is_not_queued_until_it_wakes() -> None:
    roster = Roster()
    session = enter(roster, "a")
    roster.note_room(session, 0.0)
    assert list(roster.newcomers) == [session.id]
    roster.rest(session, 0.0, 5.0, "it failed")
    roster.note_room(session, 1.0)
    assert not roster.newcomers
    roster.wake(4.9)
    assert not roster.newcomers
    roster.wake(5.0)
    assert list(roster.newcomers) == [session.id]


def test_who_left_does_not_wake() -> None:
    roster = Roster()
    session = enter(roster, "a")
    roster.rest(session, 0.0, 5.0, "it failed")
    roster.leave(session, 1.0)
    roster.wake(6.0)
    assert not roster.newcomers


def test_who_waits_longest_comes_first() -> None:
    roster = Roster()
    sessions = [enter(roster, worker) for worker in "abc"]
    for session in sessions:
        roster.note_room(session, 0.0)
    roster.note_room(sessions[0], 0.0)
    assert [id.worker for id in roster.newcomers] == ["b", "c", "a"]


def test_silence_is_measured_from_the_last_word() -> None:
    roster = Roster()
    one, two = enter(roster, "a"), enter(roster, "b")
    two.heard = 10.0
    assert list(roster.silent(36.0, 35.0)) == [one]


def test_who_speaks_again_is_not_silent() -> None:
    roster = Roster()
    one = enter(roster, "a")
    for heard in (30.0, 60.0, 90.0):
        assert roster.silent(heard + 5.0, 35.0) == []
        one.heard = heard
    assert roster.silent(120.0, 35.0) == []
    assert roster.silent(126.0, 35.0) == [one]
    assert roster.silent(126.0, 35.0) == [], "it is told once"


def test_who_has_room_is_known_by_its_worker() -> None:
    roster = Roster()
    one = roster.enter(SessionId("a", "1"), 1, 0.0, 0.0)
    two = roster.enter(SessionId("a", "2"), 1, 0.0, 0.0)
    for session in (one, two):
        roster.note_room(session, 0.0)
    assert set(roster.roomy_workers) == {"a"}
    roster.leave(one, 1.0)
    assert set(roster.roomy_workers) == {"a"}
    roster.rest(two, 1.0, 5.0, "it failed")
    assert not roster.roomy_workers


# Standing.


def lose(roster: Roster, worker: str, now: float) -> Session:
    """A worker comes, and is lost with a task."""
    session = roster.enter(SessionId(worker, "s"), 1, 0.0, now)
    roster.lost(session, "it vanished", now)
    roster.leave(session, now)
    return session


def test_losses_outlive_a_session_and_each_rest_is_twice_as_long() -> None:
    roster = Roster()
    rests = []
    now = 0.0
    for _ in range(9):
        session = lose(roster, "a", now)
        rests.append(max(0.0, session.rests_until - now))
        now += 100.0
    assert rests == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_several_tasks_lost_at_one_moment_are_one_loss() -> None:
    roster = Roster()
    session = enter(roster, "a")
    for _ in range(8):
        roster.lost(session, "it vanished", 3.0)
    assert session.losses == 1


def test_a_worker_rests_on_under_another_session() -> None:
    roster = Roster()
    for _ in range(4):
        lose(roster, "a", 1.0)
    session = roster.enter(SessionId("a", "t"), 4, 0.0, 2.0)
    assert session.rests_until == 9.0
    roster.wake(8.9)
    assert not roster.newcomers
    roster.wake(9.0)
    assert list(roster.newcomers) == [session.id]


def test_good_standing_is_not_remembered_and_wipes_out_the_bad() -> None:
    roster = Roster()
    lose(roster, "a", 1.0)
    session = enter(roster, "a")
    assert session.losses == 1
    roster.returned(session)
    roster.leave(session, 2.0)
    assert enter(roster, "a").losses == 0
    assert not roster._standings


def test_the_memory_of_bad_standing_is_bounded_and_ends_after_an_hour() -> None:
    roster = Roster()
    for number in range(MOST_REMEMBERED + 100):
        lose(roster, f"w{number}", 1.0)
    assert len(roster._standings) == MOST_REMEMBERED
    assert enter(roster, "w0").losses == 0
    assert roster.enter(SessionId("w4000", "t"), 1, 0.0, 2.0).losses == 1
    assert roster.enter(SessionId("w4000", "u"), 1, 0.0, 3601.0).losses == 0
    lose(roster, "a", 3602.0)
    assert len(roster._standings) == 1


def test_what_is_not_kept_takes_room() -> None:
    roster = Roster()
    session = enter(roster, "a", credit=MOST_TASKS)
    measure(roster, session, 100.0)
    roster.returned(session)
    session.unkept = MOST_TASKS - 1
    assert session.spare == 1
    session.unkept = MOST_TASKS
    assert session.spare == 0


def test_who_is_not_measured_may_hold_what_it_earned() -> None:
    roster = Roster()
    session = enter(roster, "a", credit=8)
    assert (session.spare, session.room) == (1, 8)
    session.earned = 3
    assert session.spare == 3
    measure(roster, session, 100.0)
    roster.returned(session)
    assert session.spare == session.room == 8
    session.limit = 2
    assert session.spare == session.room == 2


def test_who_has_returned_something_waits_before_newcomers_and_they_count_once_at_work() -> None:
    roster = Roster()
    known, new = enter(roster, "a"), enter(roster, "b")
    assert roster.share(new) == 0.5
    roster.returned(known)
    for session in (known, new):
        roster.note_room(session, 0.0)
    assert (list(roster.idle), list(roster.newcomers)) == ([known.id], [new.id])
    assert roster.share(new) == 1.0
    roster.trying = 1
    assert roster.share(new) == 0.5
    roster.set_credit(known, 0)
    assert roster.known_takers == 0
    roster.set_credit(known, 1)
    assert roster.known_takers == 1
    roster.leave(known, 0.0)
    assert (roster.known_takers, roster.waits) == (0, True)


# Merit.


def work(roster: Roster, session: Session, results: int) -> None:
    """It returns tasks, all of which count."""
    for _ in range(results):
        session.merit += 1
        roster.returned(session)


def test_each_result_that_counted_vouches_for_one_session_of_its_worker() -> None:
    roster = Roster()
    session = enter(roster, "a")
    assert not session.proven
    work(roster, session, 2)
    roster.leave(session, 1.0)
    for known in (True, True, False):
        session = roster.enter(SessionId("a", "t"), 4, 0.0, 2.0)
        assert (session.proven, session.vouched_for) == (known, known)
        assert roster.known_takers == known
        assert session.spare == (2 if known else 1)
        roster.leave(session, 3.0)


def test_what_was_returned_but_counted_for_nothing_vouches_for_nobody() -> None:
    roster = Roster()
    session = enter(roster, "a")
    roster.returned(session)
    roster.leave(session, 1.0)
    assert not enter(roster, "a").proven


def test_who_is_vouched_for_is_known_by_its_own_first_result() -> None:
    roster = Roster()
    session = enter(roster, "a")
    work(roster, session, 1)
    roster.leave(session, 1.0)
    session = enter(roster, "a")
    roster.lost(enter(roster, "b"), "it vanished", 1.0)
    work(roster, session, 1)
    assert (session.proven, session.vouched_for, roster.known_takers) == (True, False, 1)


def test_who_is_only_vouched_for_does_not_wipe_out_what_another_session_lost() -> None:
    roster = Roster()
    session = enter(roster, "a")
    work(roster, session, 1)
    roster.leave(session, 1.0)
    idle = roster.enter(SessionId("a", "t"), 1, 0.0, 1.0)
    lose(roster, "a", 2.0)
    roster.leave(idle, 3.0)
    assert enter(roster, "a").losses == 1


def test_the_memory_of_merit_is_bounded_and_ends_after_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rosters, "MOST_VOUCHED_FOR", 5)
    roster = Roster()
    for number in range(8):
        session = enter(roster, f"w{number}")
        work(roster, session, 10 * MOST_MERIT)
        roster.leave(session, 1.0)
    assert list(roster._merits) == [f"w{number}" for number in range(3, 8)]
    assert all(merit.results == MOST_MERIT for merit in roster._merits.values())
    assert roster.enter(SessionId("w7", "t"), 1, 0.0, 3600.0).proven
    assert not roster.enter(SessionId("w7", "u"), 1, 0.0, 3601.0).proven


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.booleans()), max_size=60))
def test_no_worker_is_vouched_for_more_often_than_its_results_counted(
    steps: list[tuple[str, int, bool]],
) -> None:
    """However sessions come, stay beside each other, work and go."""
    roster = Roster()
    here: dict[str, list[Session]] = {"a": [], "b": []}
    counted, vouched = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    for number, (worker, results, goes) in enumerate(steps):
        session = roster.enter(SessionId(worker, str(number)), 1, 0.0, float(number))
        vouched[worker] += session.vouched_for
        work(roster, session, results)
        counted[worker] += results
        here[worker].append(session)
        if goes:
            roster.leave(here[worker].pop(0), float(number))
        assert vouched[worker] <= counted[worker]
    assert roster.known_takers == sum(s.proven for s in roster.sessions.values())
