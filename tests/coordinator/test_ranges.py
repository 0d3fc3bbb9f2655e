from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.ranges import SUSPECT_AFTER, Range, Ranges

END = 40
SPANS = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted)
FRESH = Range(0, 0).history
HISTORIES = st.sampled_from(
    [
        FRESH,
        (frozenset("a"), 0, True, 1, 0),
        (frozenset("ab"), 1, True, 2, 3),
        (frozenset("b"), 0, False, 3, 2),
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SPANS, HISTORIES),
        st.tuples(st.just("remove"), SPANS.filter(lambda span: span[0] < span[1])),
        st.tuples(st.just("take"), st.integers(1, 12), st.sampled_from("abc")),
        st.tuples(
            st.just("take again"),
            SPANS.filter(lambda span: span[0] < span[1]),
            st.sampled_from("abc"),
        ),
    ),
    max_size=30,
)


@given(st.integers(0, END), STEPS)
def test_ranges_hold_what_a_plain_table_of_units_holds(begin: int, steps: list[tuple]) -> None:
    ranges = Ranges(begin, END)
    table = dict.fromkeys(range(begin, END), FRESH)
    for step in steps:
        if step[0] == "add":
            (first, end), history = step[1:]
            if table.keys() & range(first, end):
                continue
            ranges.add(Range(first, end, *history))
            table |= dict.fromkeys(range(first, end), history)
        elif step[0] == "remove":
            first, end = step[1]
            ranges.remove(first, end)
            for unit in range(first, end):
                table.pop(unit, None)
        elif step[0] == "take again":
            (first, end), worker = step[1:]
            parts = [
                Range(unit, unit + 1, *table[unit]) for unit in range(first, end) if unit in table
            ]
            again = ranges.take_again(first, end, worker)
            whole = len(parts) == end - first
            assert (again is not None) == (
                whole and not any(worker in part.avoid and part.attempts for part in parts)
            )
            if again is not None:
                failures = max(0, *(part.failures - (worker in part.avoid) for part in parts))
                assert again == Range(
                    first,
                    end,
                    frozenset[str]().union(*(part.avoid for part in parts)) - {worker},
                    max(part.attempts for part in parts),
                    all(part.awaited for part in parts),
                    failures,
                    max(part.most for part in parts) if failures >= SUSPECT_AFTER else 0,
                )
                for unit in range(first, end):
                    del table[unit]
        else:
            most, worker = step[1:]
            taken = ranges.take(most, worker, {"a", "b"})
            free = [
                u
                for u, (avoid, *_) in sorted(table.items())
                if worker not in avoid or avoid == {*"ab"}
            ]
            assert (taken is None) == (not free)
            if taken is not None:
                assert taken.first == free[0]
                assert 1 <= taken.size <= (min(most, taken.most) if taken.most else most)
                for unit in range(taken.first, taken.end):
                    assert table.pop(unit) == taken.history
        assert ranges.total == len(table)
        assert ranges.unawaited == sum(not history[2] for history in table.values())
        listed = list(ranges)
        assert {u: r.history for r in listed for u in range(r.first, r.end)} == table
        for low, high in pairwise(listed):
            assert low.end < high.first or (low.end == high.first and low.history != high.history)


def test_a_range_that_everybody_eligible_failed_is_for_anybody_again() -> None:
    ranges = Ranges(0, 0)
    ranges.add(Range(0, 4, frozenset("ab")))
    assert ranges.take(9, "a", {"a", "b", "c"}) is None
    assert ranges.take(9, "c", {"a", "b", "c"}) == Range(0, 4, frozenset("ab"))
    ranges.add(Range(0, 4, frozenset("ab")))
    assert ranges.take(9, "a", {"a", "b"}) == Range(0, 4, frozenset("ab"))


def test_the_lowest_range_of_the_others_comes_first() -> None:
    ranges = Ranges(8, 12)
    ranges.add(Range(2, 4, frozenset("a")))
    assert ranges.take(3, "a", {"a", "b"}) == Range(8, 11)
    assert ranges.take(3, "b", {"a", "b"}) == Range(2, 4, frozenset("a"))


def test_a_range_taken_again_has_the_history_of_all_its_parts() -> None:
    ranges = Ranges(0, 0)
    ranges.add(Range(0, 4, frozenset("a"), 2, True))
    ranges.add(Range(4, 8, frozenset("b"), 1, False))
    assert ranges.take_again(2, 6, "a") is None
    assert ranges.take_again(2, 9, "c") is None
    assert ranges.take_again(2, 6, "c") == Range(2, 6, frozenset("ab"), 2, False)
    assert list(ranges) == [Range(0, 2, frozenset("a"), 2, True), Range(6, 8, frozenset("b"), 1)]


def test_pieces_that_come_back_are_whole_again() -> None:
    ranges = Ranges(0, 100)
    taken = [ranges.take(10, "w", {"w"}) for _ in range(10)]
    for piece in reversed(taken):
        assert piece is not None
        ranges.add(piece)
    assert list(ranges) == [Range(0, 100)]
