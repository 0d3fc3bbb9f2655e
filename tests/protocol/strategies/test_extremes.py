"""Returns and updates at the ends of their ranges: a run goes on, or is refused in one line."""

import dataclasses
import random

import numpy as np
import pytest

from protocol import noise, optimizers, replay, snapshot, strategies
from protocol.messages import LARGEST_RETURN
from protocol.packing import WireError
from protocol.state import CohortTerms, UpdateTerms, apply, initial_state
from protocol.strategies import Cohort
from protocol.strategies.base import Gradient
from tests.protocol.strategies import runs
from tests.protocol.test_replay import leader, spec

SIZE = 10
START = np.linspace(-1.5, 2.0, SIZE).astype(np.float32)
LEAST = 5e-324
NEAR = {
    "one above all": [LEAST] + [0.0] * 63,
    "a few steps apart": [LEAST, 2 * LEAST, 3 * LEAST, 0.0] * 16,
    "denormal": [1e-310, -2e-310, 0.0, 3e-310] * 16,
    "zeros of both signs": [0.0, -0.0] * 32,
    "large and next to each other": [LARGEST_RETURN, np.nextafter(LARGEST_RETURN, 0.0)] * 32,
    "as far apart as they may be": [LARGEST_RETURN, -LARGEST_RETURN, LEAST, 1.0] * 16,
}
WAYS = [
    (strategies.make(kind, {"shaping": shaping} if shaping else {}), each)
    for kind in strategies.STRATEGIES
    for each in runs.each_way(kind)
    for shaping in (strategies.SHAPINGS if strategies.get(kind).shapes else [None])
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", NEAR.values(), ids=NEAR)
@pytest.mark.parametrize(("strategy", "each"), WAYS)
def test_a_run_goes_on_with_any_returns_that_are_finite(strategy, each, values):
    table = np.array(values).reshape(-1, each)
    cohort = Cohort(0, 0, 0, table[:, 0].copy(), table[:, 1].copy() if each == 2 else None)
    arithmetic = runs.rules(strategy, SIZE)
    state = initial_state(arithmetic, START, 0.3)
    weighting = strategy.weigh([cohort], runs.situation(arithmetic, state))
    assert all(np.abs(row).max() < 2**20 for row in (*weighting.weights, *weighting.squares))
    if strategy.shaping != "raw":  # whose steps grow with the returns, out of all bounds
        apply(arithmetic, state, runs.terms(state, [cohort], weighting, 0.1))


@pytest.mark.parametrize("shaping", ["z-score", "normalised"])
def test_returns_too_near_for_a_deviation_weigh_nothing(shaping):
    shaped = strategies.shape(shaping, NEAR["one above all"])
    assert not shaped.integers.any() and shaped.divisor == 1.0


NUMBERS = [0.0, -0.0, LEAST, -LEAST, 1e-300, 0.01, 1.0, -1.0, 60.0, 1e10, 3.5e38, 1e300, -1.7e308]
WEIGHTS = [0, 1, -1, 32767, -32767, 2**31, -(2**40), 2**53, 2**58, 2**62, 2**63 - 1, -(2**63)]


def hostile_terms(source, version, squares):
    """Terms as only a faulty or hostile host would tell them."""

    def integers(count):
        among = WEIGHTS[:5] if source.random() < 0.8 else WEIGHTS
        return np.array([source.choice(among) for _ in range(count)], dtype=np.int64)

    cohorts = []
    for number in range(source.choice([0, 1, 1, 2])):
        count = source.choice([1, 3, 8])
        first = source.choice([0, 16 * number, 2**40])
        row = integers(count) if squares else None
        cohorts.append(CohortTerms(first, version, integers(count), source.choice([1, 2, 60]), row))
    scale, rate, sigma = (source.choice(NUMBERS) for _ in range(3))
    scalars = tuple(source.choice(NUMBERS) for _ in range(source.choice([0, 1, 1, 2])))
    reverts = source.random() < 0.1
    return UpdateTerms(
        () if reverts else cohorts, scale, rate, sigma, scalars=scalars, reverts=reverts
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", strategies.STRATEGIES)
def test_hostile_terms_are_refused_or_lead_to_a_state_that_goes_on(kind):
    source, strategy, outcomes = random.Random(kind), strategies.get(kind)(), [0, 0]
    kinds = ["sgd"] if strategy.own_step else list(optimizers.OPTIMIZERS)
    while sum(outcomes) < 600:
        arithmetic = runs.rules(strategy, SIZE, {"kind": source.choice(kinds)})
        state = initial_state(arithmetic, START, source.choice([1e-30, 0.3, 1e6]))
        for _ in range(3):
            terms = hostile_terms(source, state.version, strategy.needs_gaussian)
            try:
                state = apply(arithmetic, state, terms)
            except (ValueError, OverflowError) as error:
                assert "\n" not in str(error)
                outcomes[0] += 1
                continue
            outcomes[1] += 1
            data = snapshot.to_bytes(state)
            assert snapshot.to_bytes(snapshot.from_bytes(arithmetic, data)) == data
            # A sigma that members are made with is a float32.
            assert np.isfinite(noise.scale(arithmetic.noise, state.spread) * np.float32(1e6)).all()
    assert min(outcomes) > 20, outcomes


def test_the_mass_of_squares_is_exact_or_refused():
    """2**58 * 64 is 0 in 64 bits."""
    strategy = strategies.get("snes")()
    arithmetic = runs.rules(strategy, SIZE)
    state = initial_state(arithmetic, START, 0.3)
    row = np.array([2**58, 1], dtype=np.int64)
    cohort = CohortTerms(0, 0, np.array([0, 1]), 64, row)
    with pytest.raises(OverflowError, match=r"2\*\*63 to be exact"):
        apply(arithmetic, state, UpdateTerms((cohort,), 1e-3, 1.0, 0.3))


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_is_no_number_is_refused_not_made_an_integer(wrong):
    """Of which one machine makes the least, another 0: with an optimizer that takes the direction
    alone they would go different ways."""
    with pytest.raises(ValueError, match="a gradient with NaN or infinity"):
        Gradient.of(np.array([1.0, wrong, 2.0]))
    arithmetic = runs.rules(strategies.get("pgpe")(), SIZE, {"kind": "normalised"})
    state = initial_state(arithmetic, START, 1e6)
    cohort = CohortTerms(0, 0, np.array([1, -3]), 1, np.array([1, 1]))
    with pytest.raises(ValueError, match="a gradient with NaN or infinity"):
        apply(arithmetic, state, UpdateTerms((cohort,), 1.7e308, 0.1, 1e6))


def test_slots_that_no_optimizer_leaves_are_refused_with_the_update():
    """In a snapshot that a host signed all the same: a division by zero is no crash."""
    run = spec(optimizer={"kind": "radam", "beta2": 0.5})
    rules, begun = replay.arithmetic(run), replay.initial_state(run)
    slots = {**begun.slots, "beta_powers": np.array([1.0, 2.0])}
    wrong = dataclasses.replace(begun, slots=slots)
    _, updates = leader(run, 1)
    with pytest.raises(WireError, match="update 0 can't be applied"):
        replay.follow(run, rules, wrong, updates[0])


@pytest.mark.parametrize("kind", ["openai-es", "sep-cma"])
@pytest.mark.parametrize("sigma", [0.0, -1.0, 1.1e10, np.inf, np.nan])
def test_a_snapshot_with_a_sigma_that_no_state_has_is_refused(kind, sigma):
    arithmetic = runs.rules(strategies.get(kind)(), SIZE)
    state = initial_state(arithmetic, START, 0.3)
    wrong = [dataclasses.replace(state, sigma=sigma)]
    if state.sigmas is not None:
        wrong.append(dataclasses.replace(state, sigmas=np.append(state.sigmas[1:], sigma)))
    for each in wrong:
        with pytest.raises(WireError, match=r"sigma|NaN or infinity"):
            snapshot.from_bytes(arithmetic, snapshot.to_bytes(each))
