"""Whom to ask before leading: the right ones first, and nobody for long who only claims."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from coordinator.standby.gathering import (
    ANSWERS_WITHIN,
    ASKED_AT_ONCE,
    LONGEST,
    REPLY_WITHIN,
    Gathering,
)
from protocol.messages import Reached


def gathering(**claims: tuple[int, int]) -> Gathering:
    """Peers by name, with the epoch and the version that they claim."""
    gathering = Gathering(0.0, Random(1))
    for peer, (epoch, version) in claims.items():
        gathering.reached(peer, Reached(version, epoch))
    return gathering


def test_nobody_is_asked_before_all_had_time_to_answer() -> None:
    pending = gathering(a=(1, 9))
    assert not pending.tick(1, 5, False, ANSWERS_WITHIN - 0.01)
    assert not pending.done and not pending.asked
    assert pending.tick(1, 5, False, ANSWERS_WITHIN)
    assert pending.asked == ("a",) and pending.goal == (1, 9)


def test_done_at_once_where_nobody_is_beyond_us() -> None:
    pending = gathering(a=(1, 5), b=(1, 3))
    assert not pending.tick(1, 5, False, ANSWERS_WITHIN)
    assert pending.done


def test_later_epoch_counts_more_than_later_version() -> None:
    pending = gathering(a=(1, 200), b=(2, 110), c=(2, 120), d=(1, 300))
    pending.tick(1, 150, False, 1.0)
    assert pending.asked[0] == "c" and len(pending.asked) == ASKED_AT_ONCE
    assert pending.goal[0] == 2
    only = gathering(a=(1, 200))
    assert not only.tick(2, 110, False, 1.0) and only.done


def test_who_sends_nothing_is_asked_no_more() -> None:
    pending = gathering(liar=(9, 2**30), honest=(1, 9), other=(1, 8), last=(1, 7))
    assert pending.tick(1, 5, False, 1.0)
    assert "liar" in pending.asked
    first = set(pending.asked)
    assert not pending.tick(1, 5, False, 1.0 + REPLY_WITHIN / 2)
    assert pending.tick(1, 5, False, 1.01 + REPLY_WITHIN)
    assert not first & set(pending.asked)


def test_who_sends_is_given_time() -> None:
    pending = gathering(a=(1, 9))
    pending.tick(1, 5, False, 1.0)
    for step in range(1, 5):
        pending.moved(1.0 + 0.9 * step)
        assert not pending.tick(1, 5, False, 1.1 + 0.9 * step)
    assert not pending.tick(1, 6, True, 6.0) and not pending.tick(1, 6, False, 6.9)
    assert pending.asked == ("a",)
    assert not pending.tick(1, 9, False, 7.0) and pending.done


@given(
    claims=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=30),
    sends=st.sets(st.integers(0, 29)),
)
def test_it_ends_with_all_that_honest_peers_have(
    claims: list[tuple[int, int]], sends: set[int]
) -> None:
    """Those of `sends` are honest: who asks them gets there."""
    pending = gathering(**{f"p{i}": claim for i, claim in enumerate(claims)})
    honest = [claims[i] for i in sends if i < len(claims)]
    epoch, version, now = 1, 5, 0.0
    while not pending.done:
        now += 0.05
        assert now <= LONGEST + 0.1
        if pending.tick(epoch, version, False, now):
            for peer in pending.asked:
                index = int(peer[1:])
                if index in sends and claims[index] > (epoch, version):
                    epoch, version = claims[index]
                    pending.moved(now)
    if len(claims) - len(honest) < 3 * (LONGEST / (REPLY_WITHIN + 0.1)) - 3:
        assert (epoch, version) == max([(1, 5), *honest])
