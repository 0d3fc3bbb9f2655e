"""The bounds of what waits, and which of two updates for one version stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol import waiting
from protocol.waiting import Waiting

EARLY, LATE = (1, 0), (2, 0)


def versions(kept: Waiting[str]) -> list[int]:
    return [version for version in range(waiting.MOST + 10) if version in kept]


def test_the_newest_are_let_go_beyond_the_bound_in_bytes() -> None:
    kept = Waiting[str](most_bytes=200)
    for version in (5, 1, 3):
        kept.keep(version, f"update {version}", EARLY, 100)
    assert versions(kept) == [1, 3]
    kept.keep(0, "update 0", EARLY, 100)
    assert versions(kept) == [0, 1]
    assert kept.pop(0) == "update 0"
    kept.keep(3, "update 3", EARLY, 100)  # what was taken out has made room
    assert versions(kept) == [1, 3]


def test_the_newest_are_let_go_beyond_the_bound_in_number() -> None:
    kept = Waiting[str](most_bytes=1 << 20)
    for version in reversed(range(waiting.MOST + 5)):
        kept.keep(version, "", EARLY, 1)
    assert versions(kept) == list(range(waiting.MOST))


def test_of_two_for_one_version_the_later_epochs_stays() -> None:
    kept = Waiting[str](most_bytes=100)
    kept.keep(3, "first", EARLY, 90)
    kept.keep(3, "again", EARLY, 90)
    assert kept.get(3) == "first"
    kept.keep(3, "later", LATE, 90)
    kept.keep(3, "earlier", EARLY, 90)
    assert kept.pop(3) == "later"
    assert kept.pop(3) is None
    assert kept.get(3) is None


def test_what_is_passed_by_makes_room() -> None:
    kept = Waiting[str](most_bytes=30)
    for version in (1, 2, 3):
        kept.keep(version, "", EARLY, 10)
    kept.pass_by(3)
    assert versions(kept) == [3]
    kept.keep(4, "", EARLY, 20)
    assert versions(kept) == [3, 4]
    kept.clear()
    assert versions(kept) == []
    kept.keep(9, "", EARLY, 30)
    assert versions(kept) == [9]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(1, 40))))
def test_no_bound_is_ever_passed(updates: list[tuple[int, int, int]]) -> None:
    kept = Waiting[int](most_bytes=100)
    for version, epoch, size in updates:
        kept.keep(version, size, (epoch, 0), size)
        assert sum(kept.get(waits) or 0 for waits in range(21)) <= 100
