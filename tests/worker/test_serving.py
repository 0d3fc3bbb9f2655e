from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.envelope import open_plain
from protocol.frozen import Frozen, Snapshots
from protocol.messages import (
    CHUNK,
    CatchUp,
    Chunk,
    ChunkRequest,
    Holding,
    Latest,
    Reached,
    Update,
)
from protocol.proof import Proof
from protocol.state import State
from worker import serving as module
from worker.replica import Followed, Restored
from worker.serving import (
    Answer,
    ChunkTurn,
    Discard,
    Freeze,
    Keep,
    Serving,
    Turn,
    UpdateTurn,
)

MEGABYTE = 1e6
CHUNKS = 20


def state_of(version: int) -> State:
    return State(version, np.zeros(3, np.float32), {}, 0.1, None)


def frozen_of(version: int, chunks: int = CHUNKS) -> Frozen:
    return Frozen(Path("/nowhere"), version, Proof(chunks * CHUNK, bytes(16 * chunks)))


def joiner(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return "j" * 16 + "-" + letters[number // 32 % 32] * 3 + letters[number % 32] * 3


def payload_of(version: int, size: int = 400) -> bytes:
    return version.to_bytes(4, "little") + bytes(size - 4)


def update_of(version: int, epoch: int) -> Update:
    digest = bytes(16)
    return Update(epoch, version, (), 0.0, 0.0, 0.1, (), 0, 0, digest, digest)


def serving_of(limit: float = 4 * MEGABYTE) -> Serving:
    return Serving(limit, Random(2))


def follow(serving: Serving, *versions: int, size: int = 400, epoch: int = 1) -> list[object]:
    deeds: list[object] = []
    for version in versions:
        step = Followed(state_of(version + 1), update_of(version, epoch), payload_of(version, size))
        deeds += serving.followed(step)
    return deeds


def turns(serving: Serving, now: float, most: int = 1000) -> list[Turn]:
    taken: list[Turn] = []
    while len(taken) < most and (turn := serving.turn(now)) is not None:
        taken.append(turn)
    return taken


# What is held.


def test_a_version_that_the_coordinator_names_is_frozen_when_we_reach_it():
    serving = serving_of()
    assert serving.wish(64, state_of(60)) == []
    assert follow(serving, 60, 61, 62) == []
    (freeze,) = follow(serving, 63)
    assert isinstance(freeze, Freeze)
    assert freeze.state.version == 64
    assert serving.held(frozen_of(64), 1.0) == [Holding(64)]
    assert serving.holdings == [Holding(64)]
    assert serving.wish(64, state_of(65)) == [Holding(64)]
    assert follow(serving, 64, 65) == []


def test_where_we_are_is_frozen_at_once_and_what_is_passed_never():
    serving = serving_of()
    assert serving.wish(63, state_of(64)) == []
    (freeze,) = serving.wish(64, state_of(64))
    assert isinstance(freeze, Freeze)
    assert serving.wish(65, state_of(65)) == []  # one at a time: a state may be large
    serving.not_held()
    assert len(serving.wish(65, state_of(65))) == 1


def test_a_version_that_comes_by_a_jump_is_not_frozen_but_kept_as_it_came():
    serving = serving_of()
    serving.wish(64, None)
    serving.wish(70, None)
    (keep,) = serving.restored(Restored(70, b"data"))
    assert isinstance(keep, Keep)
    assert (keep.version, keep.data) == (70, b"data")
    assert serving.held(frozen_of(70), 1.0) == [Holding(70)]
    assert follow(serving, 70, 71) == []


def test_who_grants_nothing_holds_and_answers_nothing():
    serving = serving_of(0)
    assert serving.wish(64, state_of(64)) == []
    assert serving.restored(Restored(70, b"data")) == []
    assert follow(serving, 1, 2) == []
    serving.asked(joiner(0), CatchUp(1), 1.0)
    serving.asked(joiner(0), Latest(0), 1.0)
    assert serving.tick(100.0) == []
    assert turns(serving, 100.0) == []
    assert serving.delay(100.0) is None


def test_two_are_kept_and_older_ones_until_a_minute_after_their_last_request():
    serving = serving_of()
    serving.held(frozen_of(1), 0.0)
    serving.asked(joiner(0), ChunkRequest(1, 0, 1), 5.0)
    serving.held(frozen_of(2), 10.0)
    assert serving.held(frozen_of(3), 20.0) == [Holding(3)]
    serving.asked(joiner(0), ChunkRequest(1, 0, 1), 50.0)
    assert serving.held(frozen_of(4), 60.0) == [Discard(2), Holding(4)]  # nobody asked for it
    assert serving.tick(109.9) == []
    assert serving.tick(110.1) == [Discard(1)]
    assert serving.tick(10_000.0) == []
    assert serving.holdings == [Holding(3), Holding(4)]


def test_whatever_is_asked_for_four_are_the_most():
    serving = serving_of()
    for version in range(1, 5):
        assert serving.held(frozen_of(version), float(version)) == [Holding(version)]
        serving.asked(joiner(0), ChunkRequest(version, 0, 1), float(version))
    serving.asked(joiner(0), ChunkRequest(1, 1, 1), 4.5)  # somebody is still at it
    assert serving.held(frozen_of(5), 5.0) == [Discard(2), Holding(5)]
    assert serving.holdings == [Holding(1), Holding(3), Holding(4), Holding(5)]


def test_a_state_that_was_not_the_runs_is_held_no_longer():
    serving = serving_of()
    serving.held(frozen_of(1), 0.0)
    follow(serving, 0, 1)
    serving.wish(2, state_of(2))  # is being frozen
    serving.asked(joiner(0), ChunkRequest(1, 0, 8), 1.0)
    assert serving.dropped() == [Discard(1)]
    assert turns(serving, 1.0) == []
    serving.asked(joiner(0), CatchUp(1), 1.0)
    assert turns(serving, 1.0) == []
    assert serving.held(frozen_of(2), 2.0) == [Discard(2)]
    assert serving.holdings == []
    assert serving.held(frozen_of(3), 3.0) == [Holding(3)]


def test_wishes_are_few():
    serving = serving_of()
    for version in range(1, 100):
        serving.wish(version, None)
    assert len(serving._wishes) == module.MOST_WISHES


# Chunks.


def test_a_window_is_sent_chunk_by_chunk_and_joiners_take_turns():
    serving = serving_of(100 * MEGABYTE)
    serving.held(frozen_of(64), 0.0)
    serving.asked(joiner(0), ChunkRequest(64, 0, 64), 1.0)
    serving.asked(joiner(1), ChunkRequest(64, 15, 8), 1.0)
    taken = turns(serving, 1.0)
    assert all(isinstance(turn, ChunkTurn) for turn in taken)
    order = [(turn.joiner, turn.index) for turn in taken if isinstance(turn, ChunkTurn)]
    one = [(joiner(0), index) for index in range(8)]  # never more than a window
    two = [(joiner(1), index) for index in range(15, CHUNKS)]
    assert order[:4] == [one[0], two[0], one[1], two[1]]
    assert sorted(order) == sorted(one + two)


def test_only_the_last_request_of_a_joiner_counts_and_keeps_its_place():
    serving = serving_of(100 * MEGABYTE)
    serving.held(frozen_of(64), 0.0)
    serving.asked(joiner(0), ChunkRequest(64, 0, 8), 1.0)
    serving.asked(joiner(1), ChunkRequest(64, 0, 1), 1.0)
    serving.asked(joiner(0), ChunkRequest(64, 8, 1), 1.0)
    taken = [(turn.joiner, turn.index) for turn in turns(serving, 1.0)]  # type: ignore[union-attr]
    assert taken == [(joiner(0), 8), (joiner(1), 0)]


def test_what_is_not_here_is_not_answered():
    serving = serving_of()
    serving.held(frozen_of(64), 0.0)
    serving.asked(joiner(0), ChunkRequest(63, 0, 8), 1.0)
    serving.asked(joiner(0), ChunkRequest(64, CHUNKS, 8), 1.0)
    assert turns(serving, 1.0) == []


def test_a_chunk_is_read_from_the_file(tmp_path: Path) -> None:
    frozen = Snapshots(tmp_path).keep(7, b"a" * CHUNK + b"bcd")
    chunk = open_plain(ChunkTurn(joiner(0), frozen, 1).payload())
    assert chunk == Chunk(7, 1, b"bcd")


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1000.0, 1e8),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(1, 64), st.floats(0.0, 1.0)),
        max_size=150,
    ),
)
def test_a_flood_of_requests_costs_neither_memory_nor_more_than_the_limit(limit, requests):
    serving, now, given_bytes = Serving(limit, Random(3)), 0.0, 0
    serving.held(frozen_of(64), now)
    follow(serving, *range(64))
    for number, first, count, pause in requests:
        serving.asked(joiner(number), ChunkRequest(64, first, count), now)
        serving.asked(joiner(number + 1), CatchUp(first), now)
        serving.asked(joiner(number), Latest(first), now)
        assert len(serving._orders) <= module.MOST_JOINERS
        assert len(serving._replies) <= module.MOST_REPLIES
        for turn in turns(serving, now):
            given_bytes += CHUNK if isinstance(turn, ChunkTurn) else len(turn.update)
        now += pause
    assert given_bytes <= max(limit, CHUNK) + limit * now + CHUNK


def test_the_limit_is_reached_in_the_long_run():
    serving, sent, now = serving_of(MEGABYTE), 0, 0.0
    serving.held(frozen_of(64), now)
    while now < 60.0:
        serving.asked(joiner(0), ChunkRequest(64, 0, 8), now)
        sent += len(turns(serving, now)) * CHUNK
        delay = serving.delay(now)
        now += 0.01 if delay is None else max(delay, 0.001)
    assert 59e6 <= sent <= 62.5e6


def test_a_small_limit_serves_few_but_those_in_time():
    """Whoever must wait for longer than its patience had better ask somebody else."""
    serving, last, worst, now = serving_of(300_000), dict[str, float](), 0.0, 0.0
    serving.held(frozen_of(64), now)
    while now < 60.0:
        for number in range(10):
            serving.asked(joiner(number), ChunkRequest(64, 0, 8), now)
        for turn in turns(serving, now):
            worst = max(worst, now - last.get(turn.joiner, now))
            last[turn.joiner] = now
        now += 0.1
    assert len(last) == 3
    assert worst < 3.0


def test_nobody_new_is_let_in_where_those_who_wait_are_served_too_slowly():
    """The line may be slower than the limit."""
    serving, now = serving_of(100 * MEGABYTE), 0.0
    serving.held(frozen_of(64), now)
    served: set[str] = set()
    while now < 30.0:
        for number in range(16):
            serving.asked(joiner(number), ChunkRequest(64, 0, 8), now)
        served.update(turn.joiner for turn in turns(serving, now, most=1))  # one in 0.8 s
        assert len(serving._orders) <= 16
        now += 0.8
    assert len(served) == 16  # all came in one moment
    latecomer = joiner(20)
    serving.asked(latecomer, ChunkRequest(64, 0, 8), now)
    assert latecomer not in serving._orders
    turns(serving, now)
    serving.asked(latecomer, ChunkRequest(64, 0, 8), now)
    assert latecomer in serving._orders


# Signed updates.


def test_the_last_updates_are_kept_within_both_bounds():
    serving = serving_of(1e9)
    follow(serving, *range(100))
    assert sorted(serving._updates) == list(range(36, 100))
    serving.asked(joiner(0), CatchUp(35), 1.0)
    assert turns(serving, 1.0) == []
    serving.asked(joiner(0), CatchUp(90), 1.0)
    got = turns(serving, 1.0)
    assert [turn.payload() for turn in got] == [payload_of(version) for version in range(90, 100)]
    assert all(isinstance(turn, UpdateTurn) for turn in got)
    follow(serving, *range(100, 120), size=500_000)
    assert serving._updates_bytes == sum(map(len, serving._updates.values())) <= 4 << 20
    assert sorted(serving._updates) == list(range(112, 120))


def test_updates_that_do_not_follow_the_last_ones_replace_them():
    serving = serving_of()
    follow(serving, 1, 2, 3)
    follow(serving, 7, 8)
    assert sorted(serving._updates) == [7, 8]
    assert serving._updates_bytes == 800


def test_who_is_beyond_says_so_soon_but_not_at_once():
    dues = set()
    for seed in range(20):
        serving = Serving(MEGABYTE, Random(seed))
        follow(serving, *range(5), epoch=3)
        serving.asked(joiner(0), Latest(4), 1.0)
        now = 1.0
        while not (deeds := serving.tick(now)):
            now += 0.01
        assert deeds == [Answer(joiner(0), Reached(5, 3))]
        assert serving.tick(10.0) == []
        dues.add(round(now, 2))
    assert max(dues) <= 1.31
    assert len(dues) > 8


def test_who_is_not_beyond_is_silent():
    serving = serving_of()
    serving.asked(joiner(0), Latest(0), 1.0)
    follow(serving, *range(5))
    serving.asked(joiner(0), Latest(5), 1.0)
    serving.asked(joiner(1), Latest(2**40), 1.0)
    assert serving.tick(2.0) == []


def test_answers_are_a_few_a_second_however_many_ask():
    serving, said = serving_of(), 0
    follow(serving, *range(5))
    for moment in range(1000):
        now = moment / 100
        for number in range(5):
            serving.asked(joiner((moment * 5 + number) % 1000), Latest(0), now)
        said += len(serving.tick(now))
    assert 35 <= said <= 45


@pytest.mark.parametrize("kind", [ChunkRequest(64, 0, 8), CatchUp(3)])
def test_an_order_ends_where_what_it_wants_is_gone(kind):
    serving = serving_of(1e9)
    serving.held(frozen_of(64), 0.0)
    follow(serving, *range(10))
    serving.asked(joiner(0), kind, 1.0)
    assert len(turns(serving, 1.0, most=2)) == 2
    serving.dropped()
    assert turns(serving, 1.0) == []
    assert serving.delay(1.0) is None
