"""What two answers show of each other."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator.trust import Answer, compare

ONE, OTHER = b"numeric class 1", b"numeric class 2"


def answer(
    first: int = 0, count: int = 6, numeric: bytes = ONE, worker: str = "a", mirrors: int = 2
) -> Answer:
    """The truth about units from `first` on: unit 3k has a tie, the others a better mirror."""
    units = np.arange(first, first + count)
    returns = np.stack([units % 7, units % 7 + units % 3 - 0.0], axis=1)[:, :mirrors] * 1.0
    lengths = np.stack([units + 1, units + 2], axis=1)[:, :mirrors]
    return Answer(worker, numeric, "members", 5, first, returns, lengths, b"sums")


def changed(told: Answer, unit: int, by: float = 0.5) -> Answer:
    """The same with another return of one member."""
    returns = told.returns.copy()
    returns[unit - told.first, 0] += by
    return msgspec.structs.replace(told, returns=returns)


@given(
    first=st.integers(0, 8),
    count=st.integers(1, 8),
    others=st.tuples(st.integers(0, 8), st.integers(1, 8)),
    wrong=st.none() | st.integers(0, 15),
)
def test_in_one_class_the_first_unit_that_differs_is_found_wherever_both_have_it(
    first: int, count: int, others: tuple[int, int], wrong: int | None
) -> None:
    mine, theirs = answer(first, count), answer(*others, worker="b")
    common = range(max(first, theirs.first), min(mine.end, theirs.end))
    if wrong is not None and first <= wrong < mine.end:
        mine = changed(mine, wrong)
    found = compare(mine, theirs)
    if not common:
        assert found is None
        return
    assert found is not None and found.exact and found.units == len(common)
    expected = wrong if wrong in common else None
    assert (found.differs, found.agrees) == (expected, expected is None)


def test_lengths_are_compared_too_and_so_are_the_sums_of_the_same_range() -> None:
    mine = answer()
    longer = msgspec.structs.replace(mine, lengths=mine.lengths + np.array([0, 1]))
    found = compare(mine, longer)
    assert found is not None and found.differs == 0
    other_sums = msgspec.structs.replace(mine, observed=b"other")
    found = compare(mine, other_sums)
    assert found is not None and (found.differs, found.sums_differ, found.agrees) == (
        None,
        True,
        False,
    )
    found = compare(answer(0, 5), other_sums)
    assert found is not None and found.agrees, "sums of another range say nothing"


def test_of_another_version_or_kind_nothing_is_compared_nor_is_what_raised() -> None:
    mine = answer()
    for change in ({"version": 6}, {"kind": "centre"}):
        assert compare(mine, msgspec.structs.replace(mine, **change)) is None
    raised = mine.returns.copy()
    raised[2] = np.nan
    found = compare(changed(mine, 2), msgspec.structs.replace(mine, returns=raised))
    assert found is not None and (found.units, found.differs) == (5, None)


def test_across_classes_only_the_signs_of_pair_differences_count() -> None:
    mine, theirs = answer(0, 9), answer(0, 9, OTHER, "b")
    found = compare(changed(mine, 1, by=0.25), theirs)
    assert found is not None and not found.exact
    assert (found.alike, found.unlike, found.agrees) == (6, 0, True), "three of nine are ties"
    swapped = msgspec.structs.replace(theirs, returns=theirs.returns[:, ::-1])
    found = compare(mine, swapped)
    assert found is not None and (found.alike, found.unlike, found.agrees) == (0, 6, False)
    nobody = msgspec.structs.replace(mine, numeric=b"")
    found = compare(nobody, by_another(nobody))
    assert found is not None and not found.exact, "no class has nothing in common with no class"


def by_another(told: Answer) -> Answer:
    return msgspec.structs.replace(told, worker="c")


def test_without_mirrors_each_unit_is_compared_with_the_next() -> None:
    mine, theirs = answer(0, 5, mirrors=1), answer(0, 5, OTHER, mirrors=1)
    found = compare(mine, theirs)
    assert found is not None and (found.alike, found.unlike) == (2, 0)
    turned = msgspec.structs.replace(theirs, returns=-theirs.returns)
    found = compare(mine, turned)
    assert found is not None and (found.alike, found.unlike) == (0, 2)
