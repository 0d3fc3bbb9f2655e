"""Checks wait in a row: whoever is at its head is no reason that others are not done."""

from __future__ import annotations

import pytest

from coordinator.pool.checks import LOOKS, Check, Checks
from coordinator.pool.work import Work


def check(first: int) -> Check:
    return Check(0, first, 1, "members", Work(first, first + 1), b"", set())


@pytest.mark.parametrize("before", [0, 1, LOOKS - 1, LOOKS, 5 * LOOKS + 3])
def test_what_suits_is_found_whatever_waits_before_it(before: int) -> None:
    checks = Checks()
    checks.waiting.extend(check(first) for first in range(before + 1))
    taken = [checks.take(lambda each: each.first == before) for _ in range(before // LOOKS + 1)]
    found = [each for each in taken if each is not None]
    assert [each.first for each in found] == [before]
    assert sorted(each.first for each in checks.waiting) == list(range(before))


def test_a_look_is_at_so_many() -> None:
    checks, seen = Checks(), []
    checks.waiting.extend(check(first) for first in range(3 * LOOKS))
    assert checks.take(lambda each: bool(seen.append(each.first))) is None
    assert seen == list(range(LOOKS))


def test_the_first_that_suits_is_taken() -> None:
    checks = Checks()
    checks.waiting.extend(check(first) for first in range(5))
    taken = checks.take(lambda each: each.first % 2 == 1)
    assert taken is not None and taken.first == 1
    assert [each.first for each in checks.waiting] == [0, 2, 3, 4]
