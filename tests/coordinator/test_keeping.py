from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.pool.events import Arrived, SendTask, SessionId
from coordinator.pool.keeping import Keeping, Useless
from tests.coordinator.driver import piece

A, B = SessionId("a", "s"), SessionId("b", "s")


def of(id: SessionId, task: int, first: int, count: int, kind: str = "members") -> Arrived:
    """The result of a task of that range."""
    return piece(SendTask(id, task, kind, 3, first, count), first, count)  # type: ignore[arg-type]


def useless(arrived: Arrived) -> Useless:
    return Useless(arrived, "duplicate", "another was first")


RANGES = st.tuples(st.integers(0, 300), st.integers(1, 150))


@settings(max_examples=60, deadline=None)
@given(st.lists(RANGES, max_size=12), RANGES)
def test_an_answer_waits_exactly_for_a_result_that_overlaps(
    kept: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    keeping = Keeping()
    for number, (first, count) in enumerate(kept):
        keeping.add(of(A, number, first, count))
    first, count = wanted
    overlaps = [number for number, (f, c) in enumerate(kept) if f < first + count and first < f + c]
    waiting = useless(of(B, 99, first, count))
    assert keeping.holds_back(waiting) == bool(overlaps)
    assert not keeping.holds_back(useless(of(B, 99, first, count, "centre")))
    told, left = [], []
    for number in range(len(kept)):
        unkept, waited = keeping.kept(A, number)
        left.append(unkept)
        if waiting in waited:
            told.append(number)
    assert len(told) == bool(overlaps)
    assert set(told) <= set(overlaps)
    assert left == list(range(len(kept)))[::-1]
    assert not keeping.holds_back(waiting)


def test_what_is_not_kept_is_counted_by_session() -> None:
    keeping = Keeping()
    assert keeping.add(of(A, 1, 0, 4)) == 1
    assert keeping.add(of(A, 1, 0, 4)) == 1
    assert keeping.add(of(A, 2, 4, 4)) == 2
    assert keeping.add(of(B, 3, 8, 4)) == 1
    assert keeping.holds_back(useless(of(B, 4, 0, 2)))
    assert keeping.add(of(A, 1, 0, 4)) == 2
    assert keeping.kept(A, 2) == (1, ())
    assert keeping.kept(A, 2) == (1, ())
    assert keeping.kept(B, 3) == (0, ())


def test_a_duplicate_that_comes_again_and_again_waits_once() -> None:
    keeping = Keeping()
    keeping.add(of(A, 1, 0, 4))
    for _ in range(1000):
        assert keeping.holds_back(useless(of(B, 2, 2, 4)))
    _, waited = keeping.kept(A, 1)
    assert len(waited) == 1


def test_a_flood_of_duplicates_looks_at_few_results_each() -> None:
    """However much is not kept yet, a useless result looks only at what is near it."""
    keeping = Keeping()
    for number in range(2000):
        keeping.add(of(A, number, 4 * number, 4))
    assert keeping.holds_back(useless(of(B, 9999, 400, 4)))
    assert max(len(near) for near in keeping._near.values()) <= 64
