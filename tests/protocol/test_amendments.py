from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import amended, amendments, replay, snapshot, state
from protocol.amended import NOTHING, Amended
from protocol.batches import Layout, Stretch
from protocol.messages import Cohort, Update, decode, encode
from protocol.packing import WireError, pack, pack_integers
from protocol.replay import follow
from protocol.spec import RunSpec, SpecError
from protocol.state import CohortTerms, UpdateTerms
from tests.protocol.test_replay import message, spec

B = 8
"""directions of a batch at first"""
REFUSED: dict[str, tuple[str, float, str]] = {
    "unknown": ("strategy.populatoin", 4.0, "can't change while a run goes on"),
    "another field": ("strategy.sigma", 0.1, "can't change while a run goes on"),
    "seed": ("seed", 3.0, "can't change while a run goes on"),
    "nobody": ("strategy.population", 0.0, "at least 2"),
    "odd": ("strategy.population", 9.0, "must be even"),
    "half a member": ("strategy.population", 2.5, "a whole number"),
    "negative": ("strategy.population", -4.0, "at least 2"),
    "2^60": ("strategy.population", 2.0**60, "at most 120,000"),
    "NaN": ("strategy.population", math.nan, "finite"),
    "infinite": ("stop.target", math.inf, "finite"),
    "no step": ("optimizer.learning_rate", 0.0, "more than 0"),
    "backwards": ("optimizer.learning_rate", -1.0, "more than 0"),
    "quorum": ("pool.quorum", 1.5, "at most 1"),
    "tasks of no time": ("pool.task_seconds", 0.0, "more than 0"),
}


def test_all_that_may_change_are_numbers_of_the_spec() -> None:
    run = spec(stop={"updates": 3, "episodes": 4, "steps": 5, "seconds": 6.0, "target": 7.0})
    for label in amendments.AMENDABLE:
        value = amendments.value_of(run, label)
        assert value is not None
        assert amendments.in_force(run, Amended(((label, value),))) == run


def test_what_holds_is_the_spec_with_the_last_word_on_each_field() -> None:
    run = spec()
    held = amendments.amend(run, NOTHING, 4, {"stop.target": 480.0})
    held = amendments.amend(run, held, 9, {"optimizer.learning_rate": 0.02})
    held = amendments.amend(run, held, 9, {"stop.target": 490.0})
    now = amendments.in_force(run, held)
    assert (now.stop.target, now.optimizer.learning_rate) == (490.0, 0.02)
    assert held.layout is None, "the batch is what it was"
    stop = msgspec.structs.replace(run.stop, target=490.0)
    optimizer = msgspec.structs.replace(run.optimizer, learning_rate=0.02)
    assert now == msgspec.structs.replace(run, stop=stop, optimizer=optimizer)
    assert amendments.amend(run, held, 10, {}) is held


def test_a_batch_changes_only_where_nobody_can_have_begun_it() -> None:
    held = amendments.amend(spec(), NOTHING, 4, {"strategy.population": 40.0})
    assert held.layout == Layout((Stretch(0, 0, B), Stretch(6, 6 * B, 20)))
    held = amendments.amend(spec(), held, 5, {"strategy.population": 2.0})
    assert held.layout == Layout((Stretch(0, 0, B), Stretch(6, 48, 20), Stretch(7, 68, 1)))
    assert held == amendments.amend(spec(), held, 6, {"strategy.population": 2.0})


@pytest.mark.parametrize("label", REFUSED)
def test_what_no_run_may_have_is_refused_with_the_rule(label: str) -> None:
    field, value, rule = REFUSED[label]
    with pytest.raises(SpecError, match=rule) as error:
        amendments.amend(spec(), NOTHING, 0, {field: value})
    assert field.split(".")[-1] in str(error.value)


def test_rules_that_tie_fields_hold_as_in_a_run_file() -> None:
    with pytest.raises(SpecError, match=r"stop.target is 480.0 but centre.evaluate_every is 0"):
        amendments.amend(spec(centre={"evaluate_every": 0}), NOTHING, 0, {"stop.target": 480.0})
    unmirrored = spec(strategy={"mirrored": False}, pool={"max_staleness": 0})
    amendments.amend(unmirrored, NOTHING, 0, {"strategy.population": 9.0})
    with pytest.raises(SpecError, match="60,000"):
        amendments.amend(unmirrored, NOTHING, 0, {"strategy.population": 70_000.0})


LABELS = st.sampled_from(["stop.target", "optimizer.learning_rate", "strategy.population"])


@given(st.lists(st.tuples(LABELS, st.integers(1, 50)), max_size=30), st.integers(1, 5))
def test_settings_survive_their_bytes_and_stay_few_however_often_they_change(
    changes: list[tuple[str, int]], window: int
) -> None:
    run, held = spec(), NOTHING
    for version, (label, value) in enumerate(changes):
        held = amendments.amend(run, held, version, {label: 2.0 * value}).reached(
            version + 1, window
        )
        data = held.to_bytes()
        assert len(data) <= amended.MOST_BYTES
        assert amended.from_bytes(data) == held
        amendments.check(run, version + 1, held)
        assert held.layout is None or len(held.layout.stretches) <= window + 2


def test_settings_that_never_changed_take_no_byte() -> None:
    assert NOTHING.to_bytes() == b"" and amended.from_bytes(b"") == NOTHING


@pytest.mark.parametrize(
    "plain",
    [
        7,
        [],
        [[], []],
        [[["stop.target", 1]], []],
        [[["stop.target", "1"]], []],
        [[["stop.target", math.nan]], []],
        [[["stop.target", 1.0], ["optimizer.learning_rate", 1.0]], []],
        [[["stop.target", 1.0], ["stop.target", 1.0]], []],
        [[["x" * 65, 1.0]], []],
        [[[1, 1.0]], []],
        [[["stop.target"]], []],
        [[["stop.target", 1.0]], [[0, 0, 0]]],
        [[["stop.target", 1.0]], [[0, 0]]],
        [[["stop.target", 1.0]], [[0, 0, 1 << 60]]],
        [[["stop.target", 1.0]], [[0, 0, 4], [2, 7, 4]]],
        [[["stop.target", 1.0]], [[-1, 0, 4]]],
        [[["stop.target", 1.0]], [[0, 0, 4.0]]],
        [[["stop.target", 1.0]], [[0, 0, True]]],
        [[[f"stop.{n:02}", 1.0] for n in range(65)], []],
        [{"stop.target": 1.0}, []],
    ],
)
def test_bytes_that_are_no_settings_are_refused(plain: Any) -> None:
    with pytest.raises(WireError):
        amended.from_bytes(pack(plain))


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_settings_or_refused(data: bytes) -> None:
    try:
        found = amended.from_bytes(data)
    except WireError:
        return
    assert found.to_bytes() == data


# A run whose settings change on its way.


def lead(run: RunSpec, changes: dict[int, dict[str, float]], updates: int) -> tuple[Any, Any]:
    """States and updates of a run with amendments by update; of its batches all directions."""
    source, rules = np.random.default_rng(3), replay.arithmetic(run)
    states, made = [replay.initial_state(run)], []
    for version in range(updates):
        before = states[-1]
        layout = amendments.layout(run, before.amended)
        now = amendments.in_force(run, before.amended)
        cohort = CohortTerms(
            layout.first(version),
            version,
            source.integers(-15, 16, size=layout.count(version)),
            60,
        )
        told = changes.get(version, {})
        terms = UpdateTerms(
            [cohort],
            1e-3,
            now.optimizer.learning_rate_at(version),
            0.1,
            episodes=2 * layout.count(version),
            steps=9,
            amended=amendments.amend(run, before.amended, version, told),
        )
        after = state.apply(rules, before, terms)
        update = msgspec.structs.replace(message(before, after, terms), amendments=told)
        sent = decode(
            encode(msgspec.structs.replace(update, state_digest=snapshot.state_digest(after)))
        )
        assert isinstance(sent, Update)
        states.append(after)
        made.append(sent)
    return states, made


RUN = spec(optimizer={"schedule": {"kind": "linear", "updates": 100}})
CHANGES = {
    1: {"strategy.population": 30.0, "stop.target": 5.0},
    4: {"optimizer.learning_rate": 0.25},
    5: {"strategy.population": 6.0},
    6: {"strategy.population": 10.0},
}
STATES, UPDATES = lead(RUN, CHANGES, 12)


def test_who_follows_an_amended_run_is_at_the_leaders_state_bit_for_bit() -> None:
    rules, ours = replay.arithmetic(RUN), replay.initial_state(RUN)
    for update, theirs in zip(UPDATES, STATES[1:], strict=True):
        ours = follow(RUN, rules, ours, update)
        assert ours.amended == theirs.amended
        assert snapshot.to_bytes(ours) == snapshot.to_bytes(theirs)
    firsts = [update.cohorts[0].first for update in UPDATES]
    assert firsts == [0, 8, 16, 24, 39, 54, 69, 84, 87, 92, 97, 102]
    rates = [update.learning_rate for update in UPDATES]
    factor = RUN.optimizer.schedule.factor
    assert rates[4] == RUN.optimizer.learning_rate * factor(4)
    assert rates[5] == 0.25 * factor(5)


@pytest.mark.parametrize("version", range(13))
def test_who_begins_at_a_snapshot_knows_what_holds(version: int) -> None:
    rules = replay.arithmetic(RUN)
    data = snapshot.to_bytes(STATES[version])
    ours = replay.restored(RUN, rules, data)
    assert ours.amended == STATES[version].amended
    for update in UPDATES[version:]:
        ours = follow(RUN, rules, ours, update)
    assert snapshot.to_bytes(ours) == snapshot.to_bytes(STATES[-1])


def test_the_digest_of_a_state_proves_its_settings() -> None:
    other = dataclasses.replace(STATES[3], amended=NOTHING)
    assert snapshot.state_digest(other) != snapshot.state_digest(STATES[3])
    assert len(snapshot.to_bytes(other)) == snapshot.state_bytes(replay.arithmetic(RUN))


@pytest.mark.parametrize("label", REFUSED)
def test_a_hostile_amendment_harms_nobody(label: str) -> None:
    field, value, _ = REFUSED[label]
    wrong = msgspec.structs.replace(UPDATES[4], amendments={field: value})
    if not math.isfinite(value):
        with pytest.raises(WireError, match="finite"):
            decode(encode(wrong))
    before = snapshot.to_bytes(STATES[4])
    with pytest.raises(WireError, match=r"update 4 has (an )?amendment"):
        follow(RUN, replay.arithmetic(RUN), STATES[4], wrong)
    assert snapshot.to_bytes(STATES[4]) == before


def test_a_cohort_larger_than_any_batch_is_refused() -> None:
    large = pack_integers(np.ones(16, dtype=np.int64))
    wrong = msgspec.structs.replace(UPDATES[9], cohorts=(Cohort(87, 9, 60, large),))
    with pytest.raises(WireError, match="not up to 5"):
        follow(RUN, replay.arithmetic(RUN), STATES[9], wrong)


def held(*values: tuple[str, float], layout: Layout | None = None) -> Amended:
    return Amended(values, layout)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (held(("strategy.sigma", 1.0)), "can't change"),
        (held(("strategy.population", 3.0)), "even"),
        (held(("strategy.population", 40.0)), "another size"),
        (held(("stop.target", 1.0), layout=Layout.even(9)), "another size"),
        (held(("stop.target", 1.0), layout=Layout((Stretch(9, 72, B),))), "before anybody"),
        (
            held(("stop.target", 1.0), layout=Layout((Stretch(0, 0, B), Stretch(99, 792, B)))),
            "before anybody",
        ),
    ],
)
def test_a_snapshot_with_settings_that_the_run_cant_have_is_refused(
    wrong: Amended, reason: str
) -> None:
    data = snapshot.to_bytes(dataclasses.replace(STATES[3], amended=wrong))
    with pytest.raises(WireError, match=reason):
        replay.restored(RUN, replay.arithmetic(RUN), data)


def test_a_revert_leaves_the_settings_as_they_are() -> None:
    run = spec(
        strategy={"kind": "random-search", "noise": "gaussian"},
        optimizer={"kind": "sgd", "learning_rate": 1.0, "momentum": 0.0},
        pool={"max_staleness": 0},
    )
    rules, first = replay.arithmetic(run), replay.initial_state(run)
    cohort = CohortTerms(0, 0, np.eye(1, B, dtype=np.int64)[0], 1)
    amendment = amendments.amend(run, NOTHING, 0, {"strategy.population": 4.0})
    candidate = state.apply(rules, first, UpdateTerms([cohort], 1.0, 1.0, 0.1, amended=amendment))
    assert candidate.is_candidate and candidate.amended.values
    back = state.apply(rules, candidate, UpdateTerms([], 0.0, 1.0, 0.1, reverts=True))
    assert back.theta.tobytes() == first.theta.tobytes()
    assert back.amended.values == candidate.amended.values
    assert amendments.layout(run, back.amended).count(2) == 2
    again = snapshot.from_bytes(rules, snapshot.to_bytes(back))
    assert again.amended == back.amended
