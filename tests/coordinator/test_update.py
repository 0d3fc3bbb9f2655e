"""Updates are the same whatever the order, and every peer reproduces them from the message."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator import update
from coordinator.peers import Leader
from coordinator.pool.events import CloseBatch, Contribution
from coordinator.update import MOST_DROPPED, SNAPSHOT_EVERY, UpdateError
from protocol import kernels, messages, normalizer, replay, snapshot, state
from protocol.envelope import open_signed
from protocol.identity import Identity, run_id
from protocol.packing import MAX_MESSAGE, unpack_integers
from protocol.spaces import Box
from tests.coordinator.runs import contribution, spec_of, states_of
from tests.coordinator.scripted import GOAL

IDENTITY = Identity(bytes(range(32)))
RUN = run_id("test", IDENTITY.public_key)
LEADER = Leader.of_own(RUN, IDENTITY, 3)

SPEC = spec_of(
    strategy={"population": 24},
    pool={"max_staleness": 2},
    optimizer={"kind": "adam", "learning_rate": 0.05},
    normalizer={"enabled": True},
)
RULES = replay.arithmetic(SPEC)
STATES = states_of(SPEC, 3)


def failing(part: Contribution, rows: list[int]) -> Contribution:
    """The same, had the episodes of these rows failed."""
    returns, lengths = part.returns.copy(), part.lengths.copy()
    returns[rows], lengths[rows] = np.nan, 0
    return msgspec.structs.replace(part, returns=returns, lengths=lengths)


@st.composite
def closings(draw: st.DrawFn) -> tuple[CloseBatch, dict[tuple[int, int], tuple[float, float]]]:
    """A closed batch of version 3, cut at random, and what it says of each (direction, version).

    Parts of batch 3 are of versions 1 to 3, late ones of batches 1 and 2 of their own versions;
    some directions are missing, some failed.
    """
    size = SPEC.directions
    parts: list[Contribution] = []
    said: dict[tuple[int, int], tuple[float, float]] = {}
    for batch in (1, 2, 3):
        place = batch * size
        while place < (batch + 1) * size:
            count = draw(st.integers(1, (batch + 1) * size - place))
            version = draw(st.integers(1, 3)) if batch == 3 else draw(st.integers(1, batch))
            if draw(st.booleans()) or batch == 3:
                part = contribution(SPEC, STATES[version], place, count)
                if draw(st.integers(0, 4)) == 0:
                    part = failing(part, [draw(st.integers(0, count - 1))])
                parts.append(part)
                for row, (plus, minus) in enumerate(part.returns.tolist()):
                    if not np.isnan(plus):
                        said[place + row, version] = plus, minus
            place += count
    order = draw(st.permutations(range(len(parts))))
    return CloseBatch(3, tuple(parts[i] for i in order), ()), said


@settings(max_examples=40, deadline=None)
@given(closings(), st.randoms(use_true_random=False))
def test_order_changes_nothing_and_peers_reproduce_it(
    drawn: tuple[CloseBatch, dict[tuple[int, int], tuple[float, float]]], shuffle: random.Random
) -> None:
    closed, said = drawn
    made, payload = update.make_signed(SPEC, RULES, LEADER, STATES[3], closed)
    parts = list(closed.contributions)
    shuffle.shuffle(parts)
    again, _ = update.make_signed(
        SPEC, RULES, LEADER, STATES[3], dataclasses.replace(closed, contributions=tuple(parts))
    )
    assert messages.encode(made.update) == messages.encode(again.update)
    figures = [repr((m.best, m.mean, m.deviation)) for m in (made, again)]
    assert figures[0] == figures[1]

    message = open_signed(payload, IDENTITY.public_key, "update", (RUN,))
    assert message == made.update
    followed = replay.follow(SPEC, RULES, STATES[3], message)
    assert snapshot.to_bytes(followed) == snapshot.to_bytes(made.after)

    present = {
        (cohort.first + row, cohort.version)
        for cohort in made.update.cohorts
        for row, weight in enumerate(unpack_integers(cohort.weights, 4096).tolist())
        if weight
    }
    assert present <= set(said)
    assert made.members == 2 * len(said)
    assert made.update.late == 2 * sum(version < 3 for _, version in said)
    assert made.update.episodes == made.members


def test_cut_of_the_work_changes_nothing() -> None:
    spec = spec_of(normalizer={"enabled": True})
    first = replay.initial_state(spec)
    whole = CloseBatch(0, (contribution(spec, first, 0, spec.directions),), ())
    for cut in (1, 3, 5):
        parts = tuple(
            contribution(spec, first, place, min(cut, spec.directions - place))
            for place in range(0, spec.directions, cut)
        )
        rules = replay.arithmetic(spec)
        one = update.make(spec, rules, first, 1, whole)
        other = update.make(spec, rules, first, 1, CloseBatch(0, parts, ()))
        assert messages.encode(one.update) == messages.encode(other.update)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_members_without_mirror_count_one_a_direction_in_any_order(data: st.DataObject) -> None:
    strategy = {"population": 9, "mirrored": False, "noise": "gaussian"}
    spec = spec_of(strategy=strategy, normalizer={"enabled": True})
    rules, before = replay.arithmetic(spec), replay.initial_state(spec)
    whole = update.make(
        spec, rules, before, 1, CloseBatch(0, (contribution(spec, before, 0, 9),), ())
    )
    cuts = [*sorted(data.draw(st.sets(st.integers(1, 8)))), 9]
    parts = [
        contribution(spec, before, first, end - first)
        for first, end in zip([0, *cuts], cuts, strict=False)
    ]
    parts = data.draw(st.permutations(parts))
    made = update.make(spec, rules, before, 1, CloseBatch(0, tuple(parts), ()))
    assert messages.encode(made.update) == messages.encode(whole.update)
    assert made.members == made.update.episodes == 9
    weights = unpack_integers(made.update.cohorts[0].weights, spec.directions)
    assert sorted(weights.tolist()) == list(range(-8, 9, 2))
    followed = replay.follow(spec, rules, before, made.update)
    assert snapshot.to_bytes(followed) == snapshot.to_bytes(made.after)
    distance = np.linalg.norm(before.theta - GOAL)
    assert np.linalg.norm(made.after.theta - GOAL) < distance


@pytest.mark.parametrize(("discount", "multipliers"), [(0, [60, 60]), (1, [30, 60]), (3, [7, 60])])
def test_late_returns_weigh_as_the_run_spec_says(discount: int, multipliers: list[int]) -> None:
    spec = spec_of(pool={"max_staleness": 2, "discount": discount})
    states, size = states_of(spec, 1), spec.directions
    parts = (contribution(spec, states[0], 0, size), contribution(spec, states[1], size, size))
    made = update.make(spec, replay.arithmetic(spec), states[1], 1, CloseBatch(1, parts, ()))
    assert [cohort.multiplier for cohort in made.update.cohorts] == multipliers


def test_direction_that_failed_in_one_part_counts_from_another() -> None:
    spec = spec_of()
    first, rules = replay.initial_state(spec), replay.arithmetic(spec)
    whole = contribution(spec, first, 0, spec.directions)
    part, retried = failing(whole, [4]), contribution(spec, first, 4, 1)
    complete = update.make(spec, rules, first, 1, CloseBatch(0, (whole,), ()))
    upper = failing(contribution(spec, first, 4, spec.directions - 4), [0])
    lower = contribution(spec, first, 0, 5)
    for parts in ((part, retried), (retried, part), (lower, upper), (upper, lower)):
        mended = update.make(spec, rules, first, 1, CloseBatch(0, parts, ()))
        assert messages.encode(complete.update) == messages.encode(mended.update)
    lacking = update.make(spec, rules, first, 1, CloseBatch(0, (part,), (4,)))
    assert lacking.members == spec.strategy.population - 2 and lacking.update.dropped == (4,)
    assert unpack_integers(lacking.update.cohorts[0].weights, spec.directions)[4] == 0


def test_nothing_arrived_is_no_step() -> None:
    made, payload = update.make_signed(SPEC, RULES, LEADER, STATES[3], CloseBatch(3, (), ()))
    assert made.after.version == 4 and made.members == 0
    assert made.update.digest_after == made.update.digest_before
    assert np.isnan(made.mean) and np.isnan(made.best)
    message = open_signed(payload, IDENTITY.public_key, "update", (RUN,))
    assert isinstance(message, messages.Update)
    replay.follow(SPEC, RULES, STATES[3], message)


def test_the_next_version_is_capped_by_the_length_of_the_episodes_that_counted() -> None:
    changes = {"episodes": 2, "cap": 1.5, "cap_minimum": 2}
    spec = spec_of(strategy={"population": 8}, environment=changes)
    before = replay.initial_state(spec)
    part = failing(contribution(spec, before, 0, 4), [1])
    lengths = np.where(part.lengths > 0, 10 * 2, 0)
    part = msgspec.structs.replace(part, lengths=lengths)
    made = update.make(spec, replay.arithmetic(spec), before, 1, CloseBatch(0, (part,), ()))
    assert (made.update.episodes, made.update.steps) == (2 * 6, 10 * 12)
    assert made.after.cap == 15


def test_schedules_follow_the_version_and_every_peer_what_the_update_says() -> None:
    linear = {"kind": "linear", "updates": 4, "floor": 0.2}
    spec = spec_of(
        optimizer={"kind": "sgd", "learning_rate": 0.5, "schedule": linear},
        strategy={"population": 24, "sigma": 0.1, "schedule": {**linear, "warm_up": 2}},
    )
    rules, states, said = replay.arithmetic(spec), [replay.initial_state(spec)], []
    for version in range(6):
        before = states[-1]
        part = contribution(spec, before, version * spec.directions, spec.directions)
        made = update.make(spec, rules, before, 1, CloseBatch(version, (part,), ()))
        # Who goes on from a snapshot, or leads in another's place, makes the very same.
        thawed = snapshot.from_bytes(rules, snapshot.to_bytes(before))
        again = update.make(spec, rules, thawed, 2, CloseBatch(version, (part,), ()))
        assert again.update.digest_after == made.update.digest_after
        states.append(replay.follow(spec, rules, before, made.update))
        said.append((made.update.learning_rate, made.update.sigma))
    rates, sigmas = zip(*said, strict=True)
    assert rates == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1, 0.1])
    # The sigma of a version is in the update before it.
    expected = [0.05, 0.1, 0.08, 0.06, 0.04, 0.02, 0.02]
    assert [reached.sigma for reached in states] == pytest.approx(expected)
    assert list(sigmas) == [reached.sigma for reached in states[1:]]


@pytest.mark.parametrize(("version", "bonus"), [(0, 0.75), (1, 0.5), (2, 0.25), (9, 0.25)])
def test_what_being_alive_brings_is_taken_off_before_members_are_compared(
    version: int, bonus: float
) -> None:
    """Once what each step brings is gone, the update is that of the rest; peers need no more."""
    plain = spec_of(strategy={"population": 16}, environment={"episodes": 2})
    fading = {"kind": "linear", "updates": 2, "floor": 1 / 3}
    spec = spec_of(
        strategy={"population": 16},
        environment={"episodes": 2, "alive_bonus": 0.75, "alive_bonus_schedule": fading},
    )
    before = dataclasses.replace(replay.initial_state(spec), version=version)
    rest = failing(contribution(plain, before, 8 * version, 8), [3])
    lengths = np.random.default_rng(1).integers(1, 999, size=rest.lengths.shape)
    eighths = np.rint(rest.returns * 8) / 8  # so that nothing is rounded below
    rest = msgspec.structs.replace(rest, returns=eighths, lengths=lengths)
    paid = msgspec.structs.replace(rest, returns=rest.returns + bonus * lengths / 2)
    expected, made, unheeded = (
        update.make(of, replay.arithmetic(of), before, 1, CloseBatch(version, (part,), ()))
        for of, part in ((plain, rest), (spec, paid), (plain, paid))
    )
    assert made.update.digest_after == expected.update.digest_after
    assert made.update.digest_after != unheeded.update.digest_after
    assert made.mean == pytest.approx(paid.returns[paid.valid].mean())  # is told as it came
    replay.follow(plain, replay.arithmetic(plain), before, made.update)


def test_snapshot_versions_prove_the_whole_state() -> None:
    before = dataclasses.replace(STATES[3], version=SNAPSHOT_EVERY - 1)
    first = (SNAPSHOT_EVERY - 1) * SPEC.directions
    closed = CloseBatch(before.version, (contribution(SPEC, before, first, 12),), ())
    made = update.make(SPEC, RULES, before, 1, closed)
    assert made.update.state_digest == snapshot.state_digest(made.after)
    usual = CloseBatch(3, (contribution(SPEC, STATES[3], 36, 12),), ())
    assert update.make(SPEC, RULES, STATES[3], 1, usual).update.state_digest == b""


def test_returns_as_large_as_floats_go_are_no_trouble() -> None:
    part = contribution(SPEC, STATES[3], 36, 12)
    part.returns[0] = 1.7e308, 1.7e308
    made = update.make(SPEC, RULES, STATES[3], 1, CloseBatch(3, (part,), ()))
    assert made.members == 24 and made.best == 1.7e308


LARGE = spec_of(
    strategy={"population": 65_536}, pool={"max_staleness": 1}, optimizer={"kind": "normalised"}
)


def large(version: int, batch: int) -> Contribution:
    """A whole batch of 32,768 directions, whose weights take 131 kB."""
    size = LARGE.directions
    returns = np.random.default_rng(batch).permutation(np.arange(2.0 * size)).reshape(size, 2)
    part = contribution(spec_of(), replay.initial_state(spec_of()), 0, 1)
    return msgspec.structs.replace(
        part,
        version=version,
        first=batch * size,
        returns=returns,
        lengths=np.ones((size, 2), dtype=np.int64),
    )


def test_late_returns_are_left_out_where_a_message_could_not_hold_them() -> None:
    rules = replay.arithmetic(LARGE)
    before = dataclasses.replace(replay.initial_state(LARGE), version=1)
    late, fresh = large(0, 0), large(1, 1)
    both = update.make(LARGE, rules, before, 1, CloseBatch(1, (late, fresh), ()))
    assert len(messages.encode(both.update)) > MAX_MESSAGE
    made, payload = update.make_signed(
        LARGE, rules, LEADER, before, CloseBatch(1, (late, fresh), (5,))
    )
    assert len(payload) <= MAX_MESSAGE
    assert made.update.late == 0 and made.members == LARGE.strategy.population
    assert made.left_out == LARGE.strategy.population
    assert made.update.dropped == (5,)
    message = open_signed(payload, IDENTITY.public_key, "update", (RUN,))
    assert isinstance(message, messages.Update)
    after = replay.follow(LARGE, rules, before, message)
    assert state.params_digest(after.theta) == made.update.digest_after


def test_only_the_oldest_returns_are_left_out_where_that_is_enough() -> None:
    spec = msgspec.structs.replace(LARGE, pool=msgspec.structs.replace(LARGE.pool, max_staleness=2))
    before = dataclasses.replace(replay.initial_state(spec), version=2)
    oldest, old, fresh = large(0, 0), large(1, 1), large(2, 2)
    few = msgspec.structs.replace(old, returns=old.returns[:3], lengths=old.lengths[:3])
    closed = CloseBatch(2, (oldest, few, fresh), ())
    made, _ = update.make_signed(spec, replay.arithmetic(spec), LEADER, before, closed)
    assert [cohort.version for cohort in made.update.cohorts] == [1, 2]
    assert (made.update.late, made.left_out) == (6, spec.strategy.population)


def test_a_few_late_returns_far_apart_take_a_few_bytes() -> None:
    rules = replay.arithmetic(LARGE)
    before = dataclasses.replace(replay.initial_state(LARGE), version=1)
    late, fresh = large(0, 0), large(1, 1)
    alone = update.make(LARGE, rules, before, 1, CloseBatch(1, (fresh,), ()))
    few = tuple(
        msgspec.structs.replace(
            late, first=first, returns=late.returns[:2] + first, lengths=late.lengths[:2]
        )
        for first in (0, 9_000, 30_000)
    )
    made = update.make(LARGE, rules, before, 1, CloseBatch(1, (*few, fresh), ()))
    assert made.update.late == 12
    assert len(messages.encode(made.update)) < len(messages.encode(alone.update)) + 100
    after = replay.follow(LARGE, rules, before, made.update)
    assert state.params_digest(after.theta) == made.update.digest_after


def test_cohorts_stay_as_few_as_a_message_may_hold() -> None:
    rules = replay.arithmetic(LARGE)
    before = dataclasses.replace(replay.initial_state(LARGE), version=1)
    whole = large(1, 1)
    parts = tuple(
        msgspec.structs.replace(
            whole,
            first=whole.first + place,
            returns=whole.returns[place : place + 1],
            lengths=whole.lengths[place : place + 1],
        )
        for place in [*range(0, 8_000, 10), *range(8_000, 32_768, 7)]
    )
    made = update.make(LARGE, rules, before, 1, CloseBatch(1, parts, ()))
    assert 1 < len(made.update.cohorts) < 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "MOST_COHORTS", 3)
        fewer = update.make(LARGE, rules, before, 1, CloseBatch(1, parts, ()))
    assert len(fewer.update.cohorts) <= 3
    assert fewer.update.digest_after == made.update.digest_after


def test_many_dropped_directions_are_named_in_part() -> None:
    rules = replay.arithmetic(LARGE)
    before = replay.initial_state(LARGE)
    closed = CloseBatch(0, (), tuple(range(LARGE.directions)))
    made, _ = update.make_signed(LARGE, rules, LEADER, before, closed)
    assert made.update.dropped == tuple(range(MOST_DROPPED))


def test_what_no_message_can_hold_ends_with_the_remedy() -> None:
    small = spec_of(normalizer={"enabled": True})  # a spec so wide is refused where it is read
    wider = msgspec.structs.replace(small.environment, observation=Box(shape=(25_000,)))
    spec = msgspec.structs.replace(small, environment=wider)
    first = replay.initial_state(spec)
    wide = np.full((1, 25_000), 0.5)
    part = contribution(spec_of(), replay.initial_state(spec_of()), 0, 1)
    assert first.normalizer is not None
    words = np.zeros((25_000, 4), dtype=np.uint64)
    kernels.observe_frames(wide, *first.normalizer.measure(), words)
    observed = normalizer.to_bytes(normalizer.from_words(1, words))
    part = msgspec.structs.replace(part, observed=observed)
    with pytest.raises(
        UpdateError, match=r"does not fit .*strategy.population.*normalizer.enabled off"
    ):
        update.make_signed(spec, replay.arithmetic(spec), LEADER, first, CloseBatch(0, (part,), ()))


def test_steps_that_leave_the_range_of_floats_end_with_the_remedy() -> None:
    spec = spec_of(optimizer={"kind": "sgd", "learning_rate": 1e6, "momentum": 0.0})
    first = dataclasses.replace(replay.initial_state(spec), sigma=1e-300)
    part = contribution(spec, replay.initial_state(spec), 0, spec.directions)
    with pytest.raises(UpdateError, match=r"the run can't go on: .* lower the learning rate"):
        update.make_signed(spec, replay.arithmetic(spec), LEADER, first, CloseBatch(0, (part,), ()))
