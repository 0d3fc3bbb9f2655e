from __future__ import annotations

import math

import numpy as np
import pytest

from coordinator.pool.events import SessionId
from coordinator.pool.ranges import Blame, Range
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
        awaited_until=overdue,
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
    work.leave(one, 1.0, Blame(frozenset("a"), attempts=1))
    assert free(work) == [Range(10, 14, frozenset("a"), 1), Range(14, 20)]
    two = claimed(work, 4, "b", 2)
    assert (two.first, two.count) == (10, 4)
    work.leave(two, 1.0, Blame(frozenset("b")))
    assert free(work)[0] == Range(10, 14, frozenset("ab"), 1)


def test_an_accepted_range_is_never_free_again() -> None:
    work = Work(0, 8)
    one = claimed(work, 4, "a", 1)
    assert work.accept(0, valid(4)).all()
    work.leave(one, 1.0, Blame(frozenset("a")))
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


def test_a_result_that_crosses_claims_leaves_them_the_rest() -> None:
    work = Work(0, 12)
    one, two, three = (
        claimed(work, 4, worker, n) for worker, n in zip("abc", (1, 2, 3), strict=True)
    )
    assert work.accept(2, valid(4)).all()
    assert free(work) == []
    assert [x.counts for x in (one, two, three)] == [True, True, True]
    assert [(x.claim.range.span, x.claim.left) for x in (one, two)] == [((0, 2), 2), ((6, 8), 2)]
    work.leave(one, 1.0, Blame(frozenset("a")))
    work.leave(two, 1.0, Blame(frozenset("b")))
    assert free(work) == [Range(0, 2, frozenset("a")), Range(6, 8, frozenset("b"))]
    assert work.missing == 8


def test_where_results_count_whole_one_that_crosses_claims_breaks_them_and_frees_the_rest() -> None:
    work = Work(0, 12)
    one, two, three = (
        claimed(work, 4, worker, n) for worker, n in zip("abc", (1, 2, 3), strict=True)
    )
    assert work.accept(2, valid(4), whole=True).all()
    assert free(work) == [Range(0, 2), Range(6, 8)]
    assert [x.counts for x in (one, two, three)] == [False, False, True]
    work.leave(one, 1.0, Blame(frozenset("a")))
    work.leave(two, 1.0, Blame(frozenset("b")))
    assert free(work) == [Range(0, 2), Range(6, 8)]
    assert work.missing == 8


@pytest.mark.parametrize("whole", [False, True])
def test_a_part_leaves_its_lease_the_rest(whole: bool) -> None:
    work = Work(0, 8)
    one = claimed(work, 8, "a", 1)
    for first, count, left in ((2, 3, (0, 8)), (0, 2, (5, 8)), (7, 1, (5, 7))):
        assert work.accept(first, valid(count), lease=one, whole=whole).all()
        one.came(first, first + count)
        assert one.counts
        assert one.claim.range.span == left
        assert free(work) == []
    assert (one.left, work.missing) == (2, 2)
    work.leave(one, 1.0)
    assert free(work) == [Range(5, 7)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_copy_of_a_lease_that_is_partly_done_is_of_what_is_left(whole: bool) -> None:
    work = Work(0, 8)
    one = claimed(work, 8, "a", 1)
    work.accept(0, valid(3), lease=one, whole=whole)
    one.came(0, 3)
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    assert (two.first, two.count) == (3, 5)
    work.accept(3, valid(2), lease=one, whole=whole)
    assert [one.counts, two.counts] == [True, not whole]
    work.leave(one, 7.0)
    assert free(work) == ([Range(5, 8, awaited=True)] if whole else [])
    work.leave(two, 7.0)
    assert [part.span for part in free(work)] == [(5, 8)]


def test_units_that_failed_leave_a_claim_that_has_a_copy() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1)
    two = lease(work, one.claim, "b", 2)
    work.accept(0, valid(2, 1), frozenset("a"), lease=one)
    assert free(work) == [Range(1, 2, frozenset("a"))]
    assert (two.claim.range.span, two.counts) == ((2, 4), True)


def test_a_range_with_a_copy_is_free_only_when_both_leases_ended() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1)
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    work.leave(one, 1.0, Blame(frozenset("a")))
    assert free(work) == []
    work.leave(two, 1.0, Blame(frozenset("b")))
    assert free(work) == [Range(0, 4, frozenset("ab"))]


def test_only_leases_that_may_bring_a_claim_and_are_not_overdue_are_trusted() -> None:
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=5.0)
    assert [one.claim.trusted(now) for now in (4.0, 5.0)] == [1, 0]
    two = lease(work, one.claim, "b", 2, overdue=9.0)
    assert [one.claim.trusted(now) for now in (4.0, 8.0, 9.0)] == [2, 1, 0]
    work.accept(0, valid(1), lease=one, whole=True)
    one.came(0, 1)
    assert two.useless
    assert [one.claim.trusted(now) for now in (4.0, 8.0)] == [1, 0]


def test_a_claim_is_expected_with_the_first_of_its_leases() -> None:
    """Who is late is expected no sooner than after being as late again."""
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=20.0)
    assert [one.claim.expected_within(now) for now in (15.0, 20.0, 30.0)] == [5.0, 0.0, 10.0]
    lease(work, one.claim, "b", 2, overdue=33.0)
    assert one.claim.expected_within(30.0) == 3.0
    work.accept(0, valid(1), lease=one, whole=True)
    assert one.claim.expected_within(30.0) == 10.0


def test_what_is_open_may_be_insured_the_oldest_first() -> None:
    work = Work(0, 12)
    one, two, three = (
        claimed(work, 4, worker, n) for worker, n in zip("abc", (1, 2, 3), strict=True)
    )
    assert work.insurable(math.inf) == [one.claim, two.claim, three.claim]
    work.settle(two.claim)
    assert work.insurable(math.inf) == [one.claim, three.claim]


def test_the_end_of_a_claim_may_go_to_another_and_the_first_result_of_a_unit_counts() -> None:
    work = Work(0, 10)
    one = claimed(work, 8, "a", 1, overdue=5.0)
    work.accept(6, valid(1), lease=one)
    one.came(6, 7)
    part = work.split(one.claim, 3, 6.0)
    assert (part.range.span, part.left) == ((4, 8), 3)
    assert (one.claim.range.span, one.claim.left) == ((0, 4), 4)
    two = lease(work, part, "b", 2, overdue=9.0)
    assert not two.awaited, "a range is awaited once"
    assert work.accept(4, valid(4), lease=two).tolist() == [True, True, False, True]
    assert [one.counts, two.counts] == [True, False]
    work.leave(two, 7.0)
    assert work.accept(0, valid(8), lease=one).tolist() == [True] * 4 + [False] * 4
    assert not one.counts
    work.leave(one, 7.0)
    assert free(work) == [Range(8, 10)]


def test_parts_of_a_claim_are_free_each_when_its_own_leases_ended() -> None:
    work = Work(0, 8)
    one = claimed(work, 8, "a", 1, overdue=5.0)
    part = work.split(one.claim, 3, 4.0)
    two = lease(work, part, "b", 2, overdue=9.0)
    assert two.awaited, "the batch waits for the whole still"
    work.leave(one, 4.0, Blame(frozenset("a"), attempts=1))
    assert free(work) == [Range(0, 5, frozenset("a"), 1)]
    work.leave(two, 4.5)
    assert free(work) == [Range(0, 5, frozenset("a"), 1), Range(5, 8)]


def test_work_expects_results_until_the_last_open_lease_is_overdue() -> None:
    work = Work(0, 8)
    claimed(work, 4, "a", 1, overdue=5.0)
    claimed(work, 4, "b", 2, overdue=7.0)
    assert work.expects(6.0)
    assert not work.expects(7.0)


def test_work_expects_those_that_are_left_when_the_slowest_result_came() -> None:
    work = Work(0, 8)
    claimed(work, 4, "a", 1, overdue=5.0)
    slow = claimed(work, 4, "b", 2, overdue=7.0)
    work.accept(slow.first, valid(4))
    assert work.expects(4.0)
    assert not work.expects(6.0)


@pytest.mark.parametrize("asks", [False, True])
def test_when_it_is_first_asked_changes_no_answer(asks: bool) -> None:
    """All leases are looked at only where the one that is waited for is over."""
    work = Work(0, 16)
    claimed(work, 4, "a", 1, overdue=5.0)
    if asks:
        assert work.expects(0.0)
    over = claimed(work, 4, "b", 2, overdue=3.0)
    slow = claimed(work, 4, "c", 3, overdue=7.0)
    work.settle(over.claim)
    work.leave(over, 1.0)
    assert work.expects(6.0)
    work.leave(slow, 6.0)
    assert not work.expects(6.5)


def test_a_range_is_awaited_once() -> None:
    """Neither a copy nor the next lease of an overdue range makes the batch wait longer."""
    work = Work(0, 4)
    one = claimed(work, 4, "a", 1, overdue=5.0)
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
    assert one.counts
    assert free(work) == []
    work.leave(one, 1.0)
    assert free(work) == [Range(0, 1), Range(2, 4)]


def test_a_range_is_claimed_again_where_all_that_is_open_of_it_is_one_free_range() -> None:
    work = Work(10, 30)
    claimed(work, 3, "a", 1)
    for first, end in ((12, 15), (28, 31), (8, 11)):
        assert work.claim_again(first, end, "b") is None
    claim = work.claim_again(14, 17, "b")
    assert claim is not None
    assert free(work) == [Range(13, 14), Range(17, 30)]
    one = lease(work, claim, "b", 900)
    work.leave(one, 1.0)
    assert free(work) == [Range(13, 30)]
    work.accept(20, valid(3))
    claim = work.claim_again(18, 23, "b")
    assert claim is not None
    assert claim.range.span == (18, 20)
    assert work.claim_again(17, 26, "b") is None
    work.accept(17, valid(3))
    assert work.claim_again(17, 23, "b") is None, "nothing of it is open"


def test_what_a_worker_vanished_with_it_may_have_again_but_not_what_it_let_run_out() -> None:
    work = Work(0, 8)
    one = claimed(work, 4, "a", 1)
    work.leave(one, 1.0, Blame(frozenset("a"), failures=1))
    claim = work.claim_again(0, 4, "a")
    assert claim is not None
    assert claim.range == Range(0, 4)
    two = lease(work, claim, "a", 1)
    work.leave(two, 1.0, Blame(frozenset("a"), attempts=1, failures=1))
    assert work.claim_again(0, 4, "a") is None


# Failures of workers.


def fail_again(work: Work, worker: str, number: int) -> Lease:
    """The lowest range, as much as one gets, fails on a worker."""
    one = claimed(work, 100, worker, number)
    work.leave(one, 1.0, Blame(frozenset(worker), failures=1))
    return one


def test_a_range_that_failed_twice_is_given_out_in_halves_until_its_poison_is_alone() -> None:
    work = Work(0, 16)
    sizes = []
    for number in range(7):
        worker = "abc"[number % 3]
        while True:
            one = claimed(work, 100, worker, number)
            if one.first <= 5 < one.first + one.count:
                break
            work.accept(one.first, valid(one.count), lease=one)
            work.leave(one, 1.0)
        sizes.append(one.count)
        work.leave(one, 1.0, Blame(frozenset(worker), failures=1))
    assert sizes == [16, 16, 8, 4, 2, 1, 1]


def test_what_failed_twice_gets_no_copy() -> None:
    work = Work(0, 2)
    fail_again(work, "a", 1)
    one = claimed(work, 2, "b", 2, overdue=5.0)
    assert work.insurable(math.inf) == [one.claim]
    work.leave(one, 1.0, Blame(frozenset("b"), failures=1))
    claimed(work, 2, "c", 3, overdue=5.0)
    assert not work.insurable(math.inf)


def test_a_unit_is_set_aside_after_enough_failures_and_comes_back() -> None:
    work = Work(0, 4)
    fail_again(work, "a", 1)
    two = fail_again(work, "b", 2)
    assert work.set_aside(two.claim, 2, 60.0, "crash") is None, "it is not known which unit fails"
    fail_again(work, "c", 3)
    one = fail_again(work, "a", 4)
    assert one.count == 1
    assert work.set_aside(one.claim, 5, 60.0, "crash") is None
    stuck = work.set_aside(one.claim, 4, 60.0, "crash")
    assert stuck is not None
    assert (stuck.range.first, stuck.range.failures, stuck.reason) == (0, 4, "crash")
    assert free(work)[0].first == 1
    assert work.missing == 4
    work.retry(lambda stuck: stuck.until <= 59.0)
    assert work.stuck
    work.retry(lambda stuck: stuck.until <= 60.0)
    assert not work.stuck
    assert free(work)[0] == stuck.range


def test_what_is_set_aside_may_still_be_settled() -> None:
    work = Work(0, 1)
    for number in range(3):
        one = fail_again(work, "abc"[number], number)
    assert work.set_aside(one.claim, 3, 60.0, "crash")
    assert work.accept(0, valid(1)).all()
    assert not work.stuck
    assert work.missing == 0


def test_two_leases_may_have_one_number_and_one_time_one_after_the_other() -> None:
    work = Work(0, 4)
    assert not work.expects(0.0)
    for _ in range(2):
        one = claimed(work, 4, "a", 1)
        work.leave(one, 1.0)
    claimed(work, 4, "a", 1)
    assert work.expects(4.0)


def test_more_units_can_be_asked_for() -> None:
    work = Work(0, 4)
    claimed(work, 4, "a", 1)
    work.extend(3)
    assert (work.size, work.end, work.missing) == (7, 7, 7)
    assert free(work) == [Range(4, 7)]


@pytest.mark.parametrize(
    ("failures", "witnesses", "confirmed"),
    [
        ("a", 1, [False]),
        ("a", 2, [False]),
        ("ab", 2, [False, True]),
        ("aa", 1, [False, True]),
        ("aaa", 2, [False, False, True]),
        ("abab", 3, [False] * 4),
        ("aabc", 3, [False, False, False, True]),
    ],
)
def test_a_failure_is_confirmed(failures: str, witnesses: int, confirmed: list[bool]) -> None:
    work = Work(0, 4)
    seen = [work.fail(2, worker, task, witnesses) for task, worker in enumerate(failures)]
    assert seen == confirmed
    assert not work.fail(3, "a", 9, witnesses)


def test_what_failed_before_is_known_by_lease_and_by_unit() -> None:
    work = Work(0, 12)
    one = claimed(work, 4, "a", 1)
    assert not work.failed_before(one.claim.range)
    work.leave(one, 1.0, Blame(frozenset("a"), failures=1))
    assert [work.failed_before(part) for part in free(work)] == [True, False]
    work.fail(9, "b", 2)
    assert [work.failed_before(Range(*span)) for span in ((8, 9), (9, 10), (10, 12))] == [
        False,
        True,
        False,
    ]
