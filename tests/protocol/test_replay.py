from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from protocol import normalizer, optimizers, replay, snapshot, state
from protocol import spec as run_spec
from protocol.messages import Cohort, Observed, Update, decode, encode
from protocol.packing import WireError, pack_integers
from protocol.replay import MismatchError, follow
from protocol.spec import RunSpec
from protocol.state import CohortTerms, State, UpdateTerms

DIRECTIONS = 8
LIMIT = 2**53
"""what multiplier * sum |weights| * max |noise| must stay below"""


def spec(**sections: Any) -> RunSpec:
    base = {
        "name": "replayed",
        "seed": 11,
        "environment": {
            "id": "CartPole-v1",
            "observation": {"kind": "box", "shape": [4]},
            "action": {"kind": "discrete", "n": 2},
        },
        "policy": {"hidden": [5]},
        "strategy": {"population": 2 * DIRECTIONS},
        "pool": {"max_staleness": 1},
    }
    return run_spec.parse(run_spec.merge(base, sections))


def observed(source: np.random.Generator, dims: int) -> normalizer.ObservationSums:
    frames = source.integers(-1000, 1000, size=(10, dims))
    linear, square = frames.sum(axis=0), (frames**2).sum(axis=0)
    return normalizer.ObservationSums(10, tuple(linear.tolist()), tuple(square.tolist()))


def leader(run: RunSpec, updates: int) -> tuple[list[State], list[Update]]:
    """States and updates of a run whose weights are drawn at random, and with them which late
    returns count, of any age that may."""
    source, ages = np.random.default_rng(3), random.Random(3)
    rules = replay.arithmetic(run)
    states, made = [replay.initial_state(run)], []
    for version in range(updates):
        before = states[-1]
        able = range(1, min(version, run.pool.max_staleness) + 1)
        late = [age for age in able if age == 1 or ages.random() < 0.5]
        cohorts = [
            CohortTerms(then * DIRECTIONS, then, weights(source), 60 // (1 + version - then))
            for then in (version, *(version - age for age in late))
        ]
        sums = [(c.version, observed(source, 4)) for c in cohorts if run.normalizer.enabled]
        terms = UpdateTerms(cohorts, 1e-3, 0.1, 0.1, sums, episodes=16, steps=900)
        after = state.apply(rules, before, terms)
        states.append(after)
        made.append(message(before, after, terms))
    return states, made


def weights(source: np.random.Generator) -> np.ndarray:
    return source.integers(-15, 16, size=DIRECTIONS)


def message(before: State, after: State, terms: UpdateTerms) -> Update:
    update = Update(
        epoch=1,
        version=before.version,
        cohorts=tuple(
            Cohort(c.first_direction, c.version, c.multiplier, pack_integers(c.weights))
            for c in terms.cohorts
        ),
        scale=terms.scale,
        learning_rate=terms.learning_rate,
        sigma=terms.sigma,
        observed=tuple(
            Observed(version, normalizer.to_bytes(sums)) for version, sums in terms.observations
        ),
        episodes=terms.episodes,
        steps=terms.steps,
        digest_before=state.params_digest(before.theta),
        digest_after=state.params_digest(after.theta),
    )
    sent = decode(encode(update))
    assert isinstance(sent, Update)
    return sent


RUNS = {
    "plain": {},
    "gaussian": {"strategy": {"noise": "gaussian"}, "optimizer": {"kind": "adam"}},
    "normalised": {"normalizer": {"enabled": True}, "optimizer": {"kind": "sgd"}},
    "stale": {"pool": {"max_staleness": 3}, "normalizer": {"enabled": True}},
    "very stale": {"pool": {"max_staleness": 16}, "normalizer": {"enabled": True}},
    "synchronous": {"pool": {"max_staleness": 0}, "policy": {"initialisation": "zero"}},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_follower_arrives_at_the_leaders_state_bit_for_bit(name: str) -> None:
    run = spec(**RUNS[name])
    states, updates = leader(run, 12 + run.pool.max_staleness)
    ages = {update.version - cohort.version for update in updates for cohort in update.cohorts}
    assert ages == set(range(run.pool.max_staleness + 1))
    rules, ours = replay.arithmetic(run), replay.initial_state(run)
    for update, theirs in zip(updates, states[1:], strict=True):
        ours = follow(run, rules, ours, update)
        assert ours.version == theirs.version
        assert ours.theta.tobytes() == theirs.theta.tobytes()
        assert all(ours.slots[n].tobytes() == theirs.slots[n].tobytes() for n in theirs.slots)
        assert (ours.episodes, ours.steps) == (theirs.episodes, theirs.steps)
        if theirs.normalizer is not None:
            assert ours.normalizer is not None
            assert ours.normalizer.mean.tobytes() == theirs.normalizer.mean.tobytes()
            assert ours.normalizer.shifts.tobytes() == theirs.normalizer.shifts.tobytes()
    assert states[0].theta.tobytes() != ours.theta.tobytes()


def test_an_optimizer_by_layers_is_told_the_policys_tensors() -> None:
    run = spec(optimizer={"kind": "novograd"})
    optimizer = replay.arithmetic(run).optimizer
    assert isinstance(optimizer, optimizers.NovoGrad)
    assert optimizer.sizes == tuple(tensor.size for tensor in run.tensors)
    assert len(optimizer.sizes) > 2


def test_version_0_follows_from_the_spec_alone() -> None:
    assert replay.initial_state(spec()).theta.tobytes() == leader(spec(), 0)[0][0].theta.tobytes()
    assert (
        replay.initial_state(spec(seed=12)).theta.tobytes()
        != replay.initial_state(spec()).theta.tobytes()
    )


RUN = spec()
RULES = replay.arithmetic(RUN)
STATES, UPDATES = leader(RUN, 3)


def broken(**changes: Any) -> Update:
    """The third update with some fields changed."""
    return msgspec.structs.replace(UPDATES[2], **changes)


def test_an_update_of_another_version_does_not_fit() -> None:
    for before in STATES[:2]:
        with pytest.raises(MismatchError, match=f"update of version 2, ours is {before.version}"):
            follow(RUN, RULES, before, UPDATES[2])


def test_an_update_from_other_parameters_does_not_fit() -> None:
    with pytest.raises(MismatchError, match="our parameters are"):
        follow(RUN, RULES, STATES[2], broken(digest_before=bytes(16)))


@pytest.mark.parametrize(
    "changes",
    [
        {"digest_after": bytes(16)},
        {"learning_rate": 0.2},
        {"cohorts": UPDATES[2].cohorts[:1]},
        {"cohorts": ()},
    ],
)
def test_an_update_that_leads_elsewhere_does_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(MismatchError, match="leads to"):
        follow(RUN, RULES, STATES[2], broken(**changes))


def test_amendments_that_this_version_does_not_know_are_not_ignored() -> None:
    run = spec()
    states, updates = leader(run, 1)
    amended = msgspec.structs.replace(updates[0], amendments={"sigma_decay": 0.5})
    with pytest.raises(WireError, match=r"amendments that this version does not know.*sigma_decay"):
        follow(run, replay.arithmetic(run), states[0], amended)
    with pytest.raises(WireError, match="amendments"):
        replay.terms(run, amended)


def test_a_state_that_differs_below_the_parameters_does_not_fit() -> None:
    proved = broken(state_digest=snapshot.state_digest(STATES[3]))
    assert follow(RUN, RULES, STATES[2], proved).theta.tobytes() == STATES[3].theta.tobytes()
    drifted = replace(STATES[2], steps=STATES[2].steps + 1)
    assert follow(RUN, RULES, drifted, UPDATES[2]).steps == STATES[3].steps + 1
    with pytest.raises(MismatchError, match="another state"):
        follow(RUN, RULES, drifted, proved)


def test_what_did_not_fit_leaves_the_state_as_it_was() -> None:
    theta = STATES[2].theta.tobytes()
    for update in (broken(digest_after=bytes(16)), broken(cohorts=(HUGE,))):
        with pytest.raises((MismatchError, WireError)):
            follow(RUN, RULES, STATES[2], update)
    assert STATES[2].theta.tobytes() == theta
    assert follow(RUN, RULES, STATES[2], UPDATES[2]).theta.tobytes() == STATES[3].theta.tobytes()


def cohort(first: int, values: list[int], version: int = 2, multiplier: int = 60) -> Cohort:
    return Cohort(first, version, multiplier, pack_integers(np.array(values)))


HUGE = cohort(16, [2**62, 2**62])
HOSTILE: dict[str, Update] = {
    "one direction in two cohorts": broken(cohorts=(cohort(16, [1, 2, 3]), cohort(18, [1]))),
    "a cohort twice": broken(cohorts=(cohort(16, [1, 2]), cohort(16, [1, 2]))),
    "a cohort inside of another": broken(cohorts=(cohort(16, [1] * 8), cohort(18, [1]))),
    "weights over the exact range": broken(cohorts=(HUGE,)),
    "the least weight there is": broken(cohorts=(cohort(16, [-(2**63)]),)),
    "just over the exact range": broken(cohorts=(cohort(16, [LIMIT // 60 + 1]),)),
    "over it in sum": broken(
        cohorts=(cohort(16, [LIMIT // 120]), cohort(24, [LIMIT // 120 + 1], multiplier=60))
    ),
    "more weights than a batch has": broken(cohorts=(cohort(16, [1] * (DIRECTIONS + 1)),)),
    "weights that are reals": broken(cohorts=(Cohort(16, 2, 60, b"\x04" + bytes(8)),)),
    "weights that are cut": broken(cohorts=(Cohort(16, 2, 60, b"\x01\x00"),)),
    "no weights at all": broken(cohorts=(Cohort(16, 2, 60, b""),)),
    "a version ahead": broken(cohorts=(cohort(16, [1], version=3),)),
    "a version that is too old": broken(cohorts=(cohort(16, [1], version=0),)),
    "a step to infinity": broken(learning_rate=1e300),
    "a step that is not a number": broken(learning_rate=float("nan")),
    "a sigma of nothing": broken(sigma=0.0),
    "a negative sigma": broken(sigma=-1.0),
    "a sigma beyond what members are made with": broken(sigma=3.5e38),
    "a negative learning rate": broken(learning_rate=-1e-3),
    "observations where there is no normaliser": broken(
        observed=(Observed(2, normalizer.to_bytes(normalizer.no_observations(4))),)
    ),
    "observations of other dimensions": broken(
        observed=(Observed(2, normalizer.to_bytes(normalizer.no_observations(3))),)
    ),
    "observations that are noise": broken(observed=(Observed(2, b"\xff" * 40),)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_update_is_refused_whole(name: str) -> None:
    with pytest.raises(WireError) as caught:
        follow(RUN, RULES, STATES[2], HOSTILE[name])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", [0, 3, 2**40], ids=["too old", "ahead", "far ahead"])
def test_observations_are_of_versions_that_may_count(version: int) -> None:
    run = spec(normalizer={"enabled": True})
    states, updates = leader(run, 3)
    sums = updates[2].observed[0].sums
    wrong = msgspec.structs.replace(updates[2], observed=(Observed(version, sums),))
    with pytest.raises(WireError):
        follow(run, replay.arithmetic(run), states[2], wrong)
    twice = msgspec.structs.replace(updates[2], observed=updates[2].observed * 2)
    with pytest.raises(WireError):
        follow(run, replay.arithmetic(run), states[2], twice)


def test_the_largest_exact_weights_are_applied() -> None:
    update = broken(cohorts=(cohort(16, [LIMIT // 60 - 1]),), digest_after=bytes(16))
    with pytest.raises(MismatchError):  # not a WireError: it could be applied
        follow(RUN, RULES, STATES[2], update)


def test_cohorts_of_one_batch_may_interleave() -> None:
    """Some of a batch evaluated a version early, some between them on time."""
    update = broken(
        cohorts=(cohort(16, [1, 0, 3, 0]), cohort(17, [2, 0, 4], version=1, multiplier=30)),
        digest_after=bytes(16),
    )
    with pytest.raises(MismatchError):
        follow(RUN, RULES, STATES[2], update)


def test_mutated_updates_raise_nothing_but_the_two_errors() -> None:
    source = random.Random(5)
    valid = encode(UPDATES[2])
    outcomes = {"applied": 0, "mismatch": 0, "refused": 0}
    for _ in range(1500):
        data = bytearray(valid)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            update = decode(bytes(data))
            if isinstance(update, Update):
                follow(RUN, RULES, STATES[2], update)
                outcomes["applied"] += 1
        except MismatchError:
            outcomes["mismatch"] += 1
        except WireError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50, outcomes
