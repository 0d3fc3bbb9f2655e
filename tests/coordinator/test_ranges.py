from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.ranges import Range, Ranges

END = 40
SPANS = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted)
HISTORIES = st.sampled_from(
    [(frozenset(), 0, False), (frozenset("a"), 0, True), (frozenset("ab"), 1, True)]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SPANS, HISTORIES),
        st.tuples(st.just("remove"), SPANS.filter(lambda span: span[0] < span[1])),
        st.tuples(st.just("take"), st.integers(1, 12), st.sampled_from("abc")),
        st.tuples(
            st.just("take exactly"),
            SPANS.filter(lambda span: span[0] < span[1]),
            st.sampled_from("abc"),
        ),
    ),
    max_size=30,
)


@given(st.integers(0, END), STEPS)
def test_ranges_hold_what_a_plain_table_of_units_holds(begin: int, steps: list[tuple]) -> None:
    ranges = Ranges(begin, END)
    table = dict.fromkeys(range(begin, END), (frozenset[str](), 0, False))
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
        elif step[0] == "take exactly":
            (first, end), worker = step[1:]
            histories = [table[unit] for unit in range(first, end) if unit in table]
            exact = ranges.take_exactly(first, end, worker)
            whole = len(histories) == end - first
            assert (exact is not None) == (whole and all(worker not in h[0] for h in histories))
            if exact is not None:
                avoid = frozenset[str]().union(*(h[0] for h in histories))
                attempts, awaited = max(h[1] for h in histories), all(h[2] for h in histories)
                assert exact == Range(first, end, avoid, attempts, awaited)
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
                assert 1 <= taken.size <= most
                for unit in range(taken.first, taken.end):
                    assert table.pop(unit) == taken[2:]
        assert ranges.total == len(table)
        assert ranges.unawaited == sum(not awaited for _, _, awaited in table.values())
        listed = list(ranges)
        assert {u: r[2:] for r in listed for u in range(r.first, r.end)} == table
        for low, high in pairwise(listed):
            assert low.end < high.first or (low.end == high.first and low[2:] != high[2:])


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


def test_a_range_taken_exactly_has_the_history_of_all_its_parts() -> None:
    ranges = Ranges(0, 0)
    ranges.add(Range(0, 4, frozenset("a"), 2, True))
    ranges.add(Range(4, 8, frozenset("b"), 1, False))
    assert ranges.take_exactly(2, 6, "a") is None
    assert ranges.take_exactly(2, 9, "c") is None
    assert ranges.take_exactly(2, 6, "c") == Range(2, 6, frozenset("ab"), 2, False)
    assert list(ranges) == [Range(0, 2, frozenset("a"), 2, True), Range(6, 8, frozenset("b"), 1)]


def test_pieces_that_come_back_are_whole_again() -> None:
    ranges = Ranges(0, 100)
    taken = [ranges.take(10, "w", {"w"}) for _ in range(10)]
    for piece in reversed(taken):
        assert piece is not None
        ranges.add(piece)
    assert list(ranges) == [Range(0, 100)]
