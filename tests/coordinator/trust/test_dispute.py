"""Whom a dispute proves wrong, and whom it never does."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from coordinator.trust import Dispute
from coordinator.trust.dispute import LEAD, SUPPORTERS

TRUTH, LIE = b"truth", b"lie"


def dispute(true: int, lies: int) -> Dispute:
    made = Dispute(3, 7, 8, b"class")
    for number in range(true):
        made.hear(f"honest{number}", TRUTH)
    for number in range(lies):
        made.hear(f"liar{number}", LIE)
    return made


def test_nobody_is_wrong_before_enough_say_otherwise() -> None:
    assert dispute(1, 1).wrong(2, frozenset()) is None
    assert dispute(SUPPORTERS - 1, 1).wrong(SUPPORTERS, frozenset()) is None
    assert dispute(SUPPORTERS, 1).wrong(SUPPORTERS + 1, frozenset()) == {"liar0"}
    assert dispute(SUPPORTERS, 1).wrong(2 * SUPPORTERS, frozenset()) is None
    assert dispute(0, 0).wrong(5, frozenset()) is None


def test_in_a_large_pool_a_lead_is_enough() -> None:
    assert dispute(LEAD, 1).wrong(1000, frozenset()) is None
    assert dispute(LEAD + 1, 1).wrong(1000, frozenset()) == {"liar0"}


def test_the_word_of_a_trusted_worker_is_taken_against_all_others() -> None:
    made = dispute(1, 9)
    assert made.wrong(10, frozenset({"honest0"})) == {f"liar{number}" for number in range(9)}
    assert dispute(5, 1).wrong(6, frozenset({"liar0"})) == {f"honest{n}" for n in range(5)}


def test_who_is_not_heard_counts_for_nothing_and_may_be_wrong() -> None:
    made = dispute(SUPPORTERS, 20)
    liars = {f"liar{number}" for number in range(20)}
    assert made.wrong(SUPPORTERS, frozenset(), liars) == liars
    assert made.wrong(40, frozenset(), made.said.keys()) is None


def test_what_a_worker_said_first_stands() -> None:
    made = dispute(3, 1)
    made.hear("liar0", TRUTH)
    assert made.wrong(4, frozenset()) == {"liar0"}


@given(workers=st.integers(3, 40), seed=st.integers(0, 1 << 30), data=st.data())
def test_a_minority_that_shares_its_rule_frames_nobody_in_a_pool_that_can_be_asked(
    workers: int, seed: int, data: st.DataObject
) -> None:
    """However they are drawn; a larger pool would take a lead of `LEAD` for a majority."""
    liars = data.draw(st.integers(1, min(LEAD - 1, (workers - 1) // 2)))
    order = [f"liar{k}" for k in range(liars)] + [f"honest{k}" for k in range(workers - liars)]
    random.Random(seed).shuffle(order)
    made = Dispute(0, 0, 1, b"class")
    for worker in order:
        made.hear(worker, LIE if worker.startswith("liar") else TRUTH)
        wrong = made.wrong(workers, frozenset())
        assert wrong is None or all(worker.startswith("liar") for worker in wrong)
    if workers - liars >= SUPPORTERS:
        assert made.wrong(workers, frozenset()) == {f"liar{k}" for k in range(liars)}


def test_in_a_large_pool_a_quarter_of_liars_frames_somebody_once_in_thousands() -> None:
    draw = random.Random(1)
    framed = 0
    for _ in range(1000):
        made = Dispute(0, 0, 1, b"class")
        made.hear("honest", TRUTH)
        made.hear("liar", LIE)
        number = 0
        while (wrong := made.wrong(1 << 30, frozenset())) is None:
            number += 1
            lies = draw.random() < 0.25
            made.hear(f"w{number}", LIE if lies else TRUTH)
        framed += "honest" in wrong
    assert framed <= 1
