from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.events import SessionId
from coordinator.pool.roster import Roster, Session


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
    roster.leave(two.id, 1.0)
    assert roster.share(one) == 1.0
    assert roster.leave(two.id, 1.0) is None


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
    roster.leave(two.id, 1.0)
    assert not roster.eligible


def test_who_rests_is_not_queued_until_it_wakes() -> None:
    roster = Roster()
    session = enter(roster, "a")
    roster.note_room(session, 0.0)
    assert list(roster.idle) == [session.id]
    roster.rest(session, 0.0, 5.0, "it failed")
    roster.note_room(session, 1.0)
    assert not roster.idle
    roster.wake(4.9)
    assert not roster.idle
    roster.wake(5.0)
    assert list(roster.idle) == [session.id]


def test_who_left_does_not_wake() -> None:
    roster = Roster()
    session = enter(roster, "a")
    roster.rest(session, 0.0, 5.0, "it failed")
    roster.leave(session.id, 1.0)
    roster.wake(6.0)
    assert not roster.idle


def test_who_waits_longest_comes_first() -> None:
    roster = Roster()
    sessions = [enter(roster, worker) for worker in "abc"]
    for session in sessions:
        roster.note_room(session, 0.0)
    roster.note_room(sessions[0], 0.0)
    assert [id.worker for id in roster.idle] == ["b", "c", "a"]


def test_silence_is_measured_from_the_last_word() -> None:
    roster = Roster()
    one, two = enter(roster, "a"), enter(roster, "b")
    two.heard = 10.0
    assert list(roster.silent(36.0, 35.0)) == [one]


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
