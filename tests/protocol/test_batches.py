from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.batches import Layout, Stretch

COUNTS = st.integers(1, 60)
CHANGES = st.lists(st.tuples(st.integers(1, 9), COUNTS), max_size=12)
"""(batches after the last change, directions from then on)"""


def layout_of(count: int, changes: list[tuple[int, int]]) -> Layout:
    layout, index = Layout.even(count), 0
    for after, directions in changes:
        index += after
        layout = layout.resized(index, directions)
    return layout


@given(COUNTS, CHANGES)
def test_every_direction_belongs_to_one_batch_whatever_changes(
    count: int, changes: list[tuple[int, int]]
) -> None:
    layout = layout_of(count, changes)
    sizes = [count]
    for after, directions in changes:
        sizes += [sizes[-1]] * (after - 1) + [directions]
    sizes += [sizes[-1]] * 3
    direction = 0
    for index, size in enumerate(sizes):
        assert (layout.first(index), layout.count(index)) == (direction, size)
        assert {layout.index(d) for d in range(direction, direction + size)} == {index}
        direction += size
    assert layout.most == max(sizes) and layout.fits_together


@given(COUNTS, CHANGES, st.integers(0, 120))
def test_what_is_kept_of_a_layout_tells_of_later_batches_as_the_whole_does(
    count: int, changes: list[tuple[int, int]], oldest: int
) -> None:
    layout = layout_of(count, changes)
    kept = layout.since(oldest)
    assert kept.fits_together and kept.since(oldest) == kept
    for index in range(oldest, oldest + 130):
        assert (kept.first(index), kept.count(index)) == (layout.first(index), layout.count(index))
    for direction in range(layout.first(oldest), layout.first(oldest) + 300):
        assert kept.index(direction) == layout.index(direction)
    if layout.first(oldest) and kept is not layout:
        assert kept.index(layout.first(oldest) - 1) < oldest
    assert sum(stretch.index <= oldest for stretch in kept.stretches) <= 1


def test_a_batch_that_may_be_begun_is_not_resized() -> None:
    layout = Layout.even(8).resized(3, 4)
    for index in (0, 2, 3):
        with pytest.raises(ValueError, match=f"batch {index} is of another size already"):
            layout.resized(index, 2)


@pytest.mark.parametrize(
    "stretches",
    [
        (Stretch(0, 0, 4), Stretch(2, 7, 4)),
        (Stretch(0, 0, 4), Stretch(2, 9, 4)),
        (Stretch(2, 0, 4), Stretch(2, 0, 4)),
        (Stretch(2, 8, 4), Stretch(1, 4, 4)),
    ],
)
def test_gaps_and_overlaps_are_seen(stretches: tuple[Stretch, ...]) -> None:
    assert not Layout(stretches).fits_together
    assert all(Layout(pair).fits_together for pair in itertools.combinations(stretches, 1))
