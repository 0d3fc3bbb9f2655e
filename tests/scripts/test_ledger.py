"""The account of a simulation: what it says of commands that are as they should be, and not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Contribution,
    KeepResult,
    Kept,
    SendAcknowledge,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from scripts.simulation.environments import spec
from scripts.simulation.ledger import Ledger
from scripts.simulation.ranking import rank_correlation

A, B = SessionId("a", "s"), SessionId("b", "s")
SIZE = 8


class Books:
    """A ledger, and hands to write wrong things into it."""

    def __init__(self, **pool: object) -> None:
        self.now = 0.0
        self.out: set[int] = set()
        self.ledger = Ledger(spec(2 * SIZE, pool=pool), lambda: self.out)

    def lease(self, task: int, first: int, count: int, version: int = 0) -> None:
        self.out.add(task)
        sent = SendTask(A, task, "members", version, first, count)
        self.ledger.observe(self.now, Tick(), [sent])

    def arrive(
        self, task: int, first: int, count: int, until: int | None = 0, version: int = 0
    ) -> Arrived:
        """A result, which the pool takes for the update that is named."""
        arrived = Arrived(
            session=A,
            task=task,
            kind="members",
            version=version,
            first=first,
            returns=np.zeros((count, 2)),
            lengths=np.full((count, 2), 10),
        )
        keep = [] if until is None else [KeepResult(arrived, until)]
        self.ledger.observe(self.now, arrived, keep)
        return arrived

    def keep(self, *results: Arrived) -> None:
        self.ledger.observe(self.now, Kept(tuple((r.session, r.name) for r in results)), [])

    def answer(self, result: Arrived, outcome: str = "accepted") -> None:
        said = SendAcknowledge(A, (result.name,), outcome)  # type: ignore[arg-type]
        self.ledger.observe(self.now, Tick(), [said])

    def close(self, version: int, *results: Arrived, dropped: Sequence[int] = ()) -> None:
        self.begin_close(version, *results, dropped=dropped)
        self.ledger.observe(self.now, Updated(version + 1), [])

    def begin_close(self, version: int, *results: Arrived, dropped: Sequence[int] = ()) -> None:
        parts = tuple(
            Contribution(r.session, r.version, r.first, r.returns, r.lengths, b"") for r in results
        )
        self.ledger.observe(self.now, Tick(), [CloseBatch(version, parts, tuple(dropped))])

    @property
    def faults(self) -> tuple[int, int]:
        return self.ledger.applied_twice, self.ledger.lost


def test_a_clean_run_has_no_faults() -> None:
    books = Books(quorum=0.5, max_staleness=1)
    first, second = books.arrive(1, 0, 5), books.arrive(2, 5, 2)
    books.keep(first, second)
    books.answer(first)
    books.answer(second)
    books.close(0, first, second, dropped=[7])
    late = books.arrive(3, 8, 4, until=1)
    books.keep(late)
    books.close(1, late)
    books.now += 100.0
    books.ledger.conclude(books.now)
    assert books.faults == (0, 0)
    assert [update.members for update in books.ledger.closed] == [14, 8]


def test_a_direction_in_two_updates_is_applied_twice() -> None:
    books = Books(quorum=0.1, max_staleness=1)
    first, second = books.arrive(1, 0, 5), books.arrive(2, 8, 1, until=1)
    books.close(0, first)
    books.close(1, first, second)
    assert books.faults == (5, 0)


def test_a_direction_twice_in_one_update_is_applied_twice() -> None:
    books = Books()
    whole, part = books.arrive(1, 0, 8), books.arrive(2, 3, 2)
    books.close(0, whole, part)
    assert books.faults == (2, 0)


def test_an_update_that_was_lost_with_its_coordinator_counts_for_nothing() -> None:
    books = Books()
    whole = books.arrive(1, 0, 8)
    books.keep(whole)
    books.begin_close(0, whole)
    books.ledger.died({(A, 1)})
    books.close(0, whole)
    assert books.faults == (0, 0)


def test_an_accepted_result_that_no_update_uses_in_time_is_lost() -> None:
    books = Books(quorum=0.5, max_staleness=1)
    first, second = books.arrive(1, 0, 5), books.arrive(2, 5, 3)
    books.close(0, first)
    assert books.faults == (0, 3)
    books.close(1, second, books.arrive(3, 8, 8, until=1))
    assert books.faults == (0, 3), "too late is lost"


def test_what_was_accepted_for_a_later_update_is_not_lost_yet() -> None:
    books = Books(quorum=0.5, max_staleness=1)
    first, late = books.arrive(1, 0, 5), books.arrive(2, 5, 3, until=1)
    books.close(0, first)
    assert books.faults == (0, 0)
    books.close(1, books.arrive(3, 8, 8, until=1))
    assert books.faults == (0, 3)
    assert late.count == 3


def test_what_was_durable_must_outlive_the_coordinator_and_the_rest_need_not() -> None:
    books = Books(quorum=0.1, max_staleness=1)
    durable, other = books.arrive(1, 0, 3), books.arrive(2, 3, 2)
    books.ledger.died({(durable.session, durable.name)})
    books.close(0, books.arrive(3, 7, 1))
    assert books.faults == (0, 3)
    assert other.count == 2


def test_what_was_kept_must_be_there_when_the_coordinator_dies() -> None:
    books = Books()
    books.keep(books.arrive(1, 0, 3))
    books.arrive(2, 3, 2)
    books.ledger.died(set())
    assert books.faults == (0, 3)


def test_an_answer_before_the_result_is_durable_counts_as_lost() -> None:
    books = Books()
    result = books.arrive(1, 0, 8)
    books.answer(result)
    assert books.faults == (0, 8)


def test_a_result_that_is_never_answered_is_lost() -> None:
    books = Books()
    books.arrive(1, 0, 8, until=None)
    books.now += 100.0
    books.ledger.conclude(books.now)
    assert books.faults == (0, 8)


def test_a_result_that_came_twice_before_its_one_answer_is_not_lost() -> None:
    books = Books()
    books.arrive(1, 0, 8, until=None)
    twice = books.arrive(1, 0, 8, until=None)
    books.now += 1.0
    books.answer(twice, "duplicate")
    books.now += 100.0
    books.arrive(1, 0, 8, until=None)
    books.now += 100.0
    assert books.faults == (0, 0)
    books.ledger.conclude(books.now)
    assert books.faults == (0, 8), "the third came after the answer"


def test_a_result_refused_with_a_reason_is_not_lost() -> None:
    books = Books()
    books.answer(books.arrive(1, 0, 8, until=None), "late")
    books.now += 100.0
    books.ledger.conclude(books.now)
    assert books.faults == (0, 0)
    assert books.ledger.outcomes["late"] == 16


def test_an_update_below_the_quorum_lost_what_it_should_have_waited_for() -> None:
    books = Books(quorum=0.75, max_staleness=1)
    books.close(0, books.arrive(1, 0, 3), dropped=[7])
    assert books.faults == (0, 2)


def test_copies_are_told_from_what_is_leased_again() -> None:
    books = Books()
    books.lease(1, 0, 4)
    books.lease(2, 0, 4)
    books.out.clear()
    books.lease(3, 0, 4)
    books.lease(4, 4, 1)
    ledger = books.ledger
    assert (ledger.leased, ledger.leased_again, ledger.copies) == (26, 16, 8)


def test_the_tail_begins_with_the_last_direction_that_is_leased_for_the_first_time() -> None:
    books = Books()
    books.lease(1, 0, 4)
    books.now = 3.0
    books.lease(2, 4, 4)
    books.now = 4.0
    books.lease(3, 4, 4)
    books.now = 5.0
    books.close(0, books.arrive(1, 0, 4), books.arrive(2, 4, 4))
    assert books.ledger.closed[0].tail == 2.0


def test_members_are_told_by_their_age() -> None:
    books = Books(quorum=0.1, max_staleness=2, discount=1)
    books.close(0, books.arrive(1, 0, 1))
    ahead = books.arrive(2, 8, 3, until=1)
    books.close(1, ahead, books.arrive(3, 11, 2, until=1, version=1))
    assert books.ledger.closed[1].ages == {0: 4, 1: 6}
    account = books.ledger.account(1)
    assert account.multiplier.tolist() == [30, 30, 30, 60, 60, 0, 0, 0]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3], [5, 5, 5], 0.0),
        ([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / np.sqrt(4.5 * 5.0)),
    ],
)
def test_rank_correlation(one: list[int], other: list[int], expected: float) -> None:
    assert rank_correlation(one, other) == pytest.approx(expected)
