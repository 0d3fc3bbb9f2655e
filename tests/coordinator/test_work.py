from __future__ import annotations

import numpy as np
import pytest

from coordinator.pool.events import SessionId
from coordinator.pool.ranges import Range
from coordinator.pool.work import Claim, Lease, Work

EVERYBODY = {"a", "b", "c"}


def lease(work: Work, claim: Claim, worker: str, task: int, overdue: float = 5.0) -> Lease:
    made = Lease(
        task=task,
        session=SessionId(worker, "s"),
        kind="members",
        version=0,
        first=claim.range.first,
        count=claim.range.size,
        work=work,
        claim=claim,
        issued=0.0,
        expected=overdue,
        overdue=overdue,
        deadline=10.0,
    )
    work.enter(made)
    return made


def claimed(work: Work, most: int, worker: str, task: int, overdue: float = 5.0) -> Lease:
    claim = work.claim(most, worker, EVERYBODY)
    assert claim is not None
    return lease(work, claim, worker, task, overdue)


def free(work: Work) -> list[Range]:
    return list(work.unleased)


def valid(count: int, *missing: int) -> np.ndarray:
    rows = np.ones(count, dtype=bool)
    rows[list(missing)] = False
    return rows


def test_a_lease_that_ends_without_result_frees_its_range_with_its_history() -> None:
    work = Work(10, 20)
    one = claimed(work, 4, "a", 1)
    work.leave(one, 1.0, frozenset("a"), attempts=1)
    assert free(work) == [Range(10, 14, frozenset("a"), 1), Range(14, 20)]
    two = claimed(work, 4, "b", 2)
    assert (two.first, two.count) == (10, 4)
    work.leave(two, 1.0, frozenset("b"))
    assert free(work)[0] == Range(10, 14, frozenset("ab"), 1)


def test_an_accepted_range_is_never_free_again() -> None:
    work = Work(0, 8)
    one = claimed(work, 4, "a", 1)
    assert work.accept(0, valid(4)).all()
    work.leave(one, 1.0, frozenset("a"))
    assert work.missing == 4
    assert free(work) == [Range(4, 8)]
    assert not work.is_open(0, 4).any()
    assert not work.accept(0, valid(4)).any()
    assert work.missing == 4


def test_units_without_a_return_are_free_for_others_first() -> None:
    work = Work(0, 6)
    one = claimed(work, 6, "a", 1)
    taken = work.accept(0, valid(6, 2, 5), frozenset("a"))
    work.leave(one, 1.0)
    assert taken.tolist() == [True, True, False, True, True, False]
    assert free(work) == [Range(2, 3, frozenset("a")), Range(5, 6, frozenset("a"))]
    assert work.missing == 2


def test_a_result_that_crosses_claims_breaks_them_and_frees_the_rest() -> None:
    work = Work(0, 12)
    one, two, three = (
        claimed(work, 4, worker, n) for worker, n in zip("abc", (1, 2, 3), strict=True)
    )
    assert work.accept(2, valid(4)).all()
    assert free(work) == [Range(0, 2), Range(6, 8)]
    assert [x.counts for x in (one, two, three)] == [False, False, True]
    work.leave(one, 1.0, frozenset("a"))
    work.leave(two, 1.0, frozenset("b"))
    assert free(work) == [Range(0, 2), Range(6, 8)]
    assert work.missing == 8


def test_a_range_with_a_copy_is_free_only_when_both_leases_ended() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1)
    assert work.overdue(6.0, SessionId("b", "s")) is one
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    work.leave(one, 1.0, frozenset("a"))
    assert free(work) == []
    work.leave(two, 1.0, frozenset("b"))
    assert free(work) == [Range(0, 4, frozenset("ab"))]


def test_a_lease_is_copied_once_until_the_copy_is_overdue_or_lost() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=5.0)
    b, c = SessionId("b", "s"), SessionId("c", "s")
    assert not work.has_overdue(5.0)
    assert work.overdue(6.0, SessionId("a", "s")) is None  # nobody insures itself
    assert work.overdue(6.0, b) is one
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    assert work.overdue(8.0, c) is None
    work.leave(two, 1.0)
    assert work.overdue(8.0, c) is one
    lease(work, one.claim, "c", 3, overdue=9.0)
    assert work.overdue(10.0, b) is not None


def test_the_most_overdue_comes_first_and_what_no_longer_counts_never() -> None:
    work = Work(0, 12)
    early = claimed(work, 4, "a", 1, overdue=5.0)
    late = claimed(work, 4, "b", 2, overdue=4.0)
    claimed(work, 4, "c", 3, overdue=50.0)
    d = SessionId("d", "s")
    work.accept(late.first, valid(4))
    assert work.overdue(6.0, d) is early
    assert work.overdue(6.0, d) is None
    assert not work.has_overdue(6.0)


def test_work_expects_results_until_the_last_open_lease_is_overdue() -> None:
    work = Work(0, 8)
    claimed(work, 4, "a", 1, overdue=5.0)
    slow = claimed(work, 4, "b", 2, overdue=7.0)
    assert work.expects(6.0)
    assert not work.expects(7.0)
    work.accept(slow.first, valid(4))
    assert work.expects(4.0)
    assert not work.expects(6.0)


def test_a_range_is_awaited_once() -> None:
    """Neither a copy nor the next lease of an overdue range makes the batch wait longer."""
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=5.0)
    assert work.overdue(6.0, SessionId("b", "s")) is one
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    assert not work.expects(6.0)
    work.leave(one, 6.0)
    work.leave(two, 6.5)
    assert work.unleased.unawaited == 0
    claimed(work, 4, "c", 3, overdue=20.0)
    assert not work.expects(7.0)


def test_a_range_that_was_given_back_early_is_awaited_again() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=5.0)
    work.leave(one, 2.0)
    assert work.unleased.unawaited == 4
    claimed(work, 4, "b", 2, overdue=9.0)
    assert work.expects(6.0)


def test_dropping_a_unit_settles_it() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1)
    work.drop(1)
    assert work.missing == 3
    assert not one.counts
    assert free(work) == [Range(0, 1), Range(2, 4)]
    work.leave(one, 1.0, frozenset("a"))
    assert free(work) == [Range(0, 1), Range(2, 4)]


def test_a_range_is_claimed_exactly_where_all_of_it_is_free() -> None:
    work = Work(10, 20)
    claimed(work, 3, "a", 1)
    assert work.claim_exactly(12, 15, "b") is None
    assert work.claim_exactly(18, 21, "b") is None
    assert work.claim_exactly(8, 11, "b") is None
    claim = work.claim_exactly(14, 17, "b")
    assert claim is not None
    assert free(work) == [Range(13, 14), Range(17, 20)]
    one = lease(work, claim, "b", 900)
    work.leave(one, 1.0)
    assert free(work) == [Range(13, 20)]


def test_two_leases_may_have_one_number_and_one_time_one_after_the_other() -> None:
    work = Work(0, 4)
    for _ in range(2):
        one = claimed(work, 4, "a", 1)
        work.leave(one, 1.0)
    copied = claimed(work, 4, "a", 1)
    assert work.overdue(20.0, SessionId("b", "s")) is copied


def test_more_units_can_be_asked_for() -> None:
    work = Work(0, 4)
    claimed(work, 4, "a", 1)
    work.extend(3)
    assert (work.size, work.end, work.missing) == (7, 7, 7)
    assert free(work) == [Range(4, 7)]


@pytest.mark.parametrize(
    ("failures", "alone", "confirmed"),
    [
        ("a", False, [False]),
        ("ab", False, [False, True]),
        ("aa", True, [False, True]),
        ("aaa", False, [False, False, True]),
    ],
)
def test_a_failure_is_confirmed(failures: str, alone: bool, confirmed: list[bool]) -> None:
    work = Work(0, 4)
    seen = [work.fail(2, worker, task, alone) for task, worker in enumerate(failures)]
    assert seen == confirmed
    assert not work.fail(3, "a", 9, alone)
