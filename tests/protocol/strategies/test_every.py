"""What holds for every registered strategy; update_vectors.json pins a hundred updates of each."""

import numpy as np
import pytest

from protocol import snapshot, strategies
from protocol.errors import ShoalError
from protocol.state import apply, initial_state, params_hash
from protocol.strategies import Cohort
from tests.protocol.strategies import runs

SIZE = 10
START = np.linspace(-1.5, 2.0, SIZE).astype(np.float32)
KINDS = list(strategies.STRATEGIES)
WAYS = [(kind, each) for kind in KINDS for each in runs.each_way(kind)]


def sphere(x):
    return -float(x @ x)


def ellipsoid(x):
    """Rotated, with axes from 1 to 10."""
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(SIZE, SIZE)))[0] @ x
    return -float((turned**2 * np.logspace(0, 2, SIZE)).sum())


def rosenbrock(x):
    return -float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def flat(x):
    return 7.0


def stepped(x):
    """Few different values, so that much ties."""
    return float(np.floor(-np.abs(x).sum()))


def same(a, b):
    return snapshot.state_digest(a) == snapshot.state_digest(b)


@pytest.mark.parametrize(("kind", "each"), WAYS)
def test_equal_returns_move_neither_parameters_nor_sigma_nor_memory(kind, each):
    strategy = strategies.get(kind)()
    arithmetic = runs.rules(strategy, SIZE)
    state = initial_state(arithmetic, START, 0.3)
    for objective in (stepped, flat, flat):
        cohort = runs.evaluated(arithmetic, state, 40 * state.version, 16, objective, each)
        before, state = state, runs.made(arithmetic, state, [cohort], 0.1)
    assert state.version == 3
    for name in ("theta", "sigma", "sigmas", "slots", "memory"):
        np.testing.assert_equal(getattr(state, name), getattr(before, name))


@pytest.mark.parametrize(("kind", "each"), WAYS)
@pytest.mark.parametrize("wrong", [np.inf, -np.inf])
def test_an_infinite_return_is_refused(kind, each, wrong):
    plus, minus = np.array([1.0, wrong, 2.0]), np.zeros(3) if each == 2 else None
    arithmetic = runs.rules(strategies.get(kind)(), SIZE)
    state = initial_state(arithmetic, START, 0.3)
    with pytest.raises(ValueError, match="must be finite"):
        runs.made(arithmetic, state, [Cohort(0, 0, 0, plus, minus)], 0.1)


@pytest.mark.parametrize(("kind", "each"), WAYS)
def test_nan_is_a_missing_direction_that_weighs_nothing(kind, each):
    arithmetic = runs.rules(strategies.get(kind)(), SIZE)
    state = initial_state(arithmetic, START, 0.3)
    whole = runs.evaluated(arithmetic, state, 0, 12, sphere, each)
    gone = [3, 4, 9]
    holed = Cohort(0, 0, 0, whole.returns_plus.copy(), None)
    holed.returns_plus[gone] = np.nan
    if each == 2:
        minus = whole.returns_minus.copy()
        minus[gone] = np.nan
        holed = Cohort(0, 0, 0, holed.returns_plus, minus)
    weighting = arithmetic.strategy.weigh([holed], runs.situation(arithmetic, state))
    for row in (*weighting.weights, *weighting.squares):
        assert row.dtype == np.int64 and not row[gone].any()
    assert weighting.members == 9 * each and not weighting.rests


@pytest.mark.parametrize(("kind", "each"), WAYS)
@pytest.mark.parametrize("objective", [sphere, stepped])
def test_the_same_returns_in_any_order_and_cut_give_the_same_state(kind, each, objective):
    arithmetic = runs.rules(strategies.get(kind)(), SIZE)
    state = initial_state(arithmetic, START, 0.3)
    whole = runs.evaluated(arithmetic, state, 0, 24, objective, each)
    minus = whole.returns_minus
    parts = [
        Cohort(
            a, 0, 0, whole.returns_plus[a:b].copy(), None if minus is None else minus[a:b].copy()
        )
        for a, b in ((0, 5), (5, 6), (6, 17), (17, 24))
    ]
    expected = runs.made(arithmetic, state, [whole], 0.1)
    assert params_hash(expected.theta) != params_hash(START)
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        assert same(runs.made(arithmetic, state, [parts[i] for i in order], 0.1), expected)


@pytest.mark.parametrize(("kind", "each"), WAYS)
def test_it_climbs_a_sphere_and_a_rotated_ellipsoid(kind, each):
    strategy = strategies.get(kind)()
    for objective in (sphere, ellipsoid):
        rate = None if strategy.own_step else 0.3
        found = runs.optimised(strategy, objective, START, 60, learning_rate=rate, each=each)
        begun, ended = objective(START.astype(float)), objective(found.theta.astype(float))
        assert ended > begun / 5, (objective.__name__, begun, ended)


@pytest.mark.parametrize("kind", ["snes", "sep-cma", "cem", "pgpe"])
def test_what_adapts_sigma_comes_nearer_the_top_with_smaller_steps(kind):
    rate = 0.05 if kind == "pgpe" else None
    found = runs.optimised(strategies.get(kind)(), sphere, START, 150, learning_rate=rate)
    assert sphere(found.theta.astype(float)) > -0.05
    assert found.sigmas.max() < 0.1


@pytest.mark.parametrize("kind", ["snes", "sep-cma"])
def test_it_follows_the_valley_of_rosenbrock(kind):
    found = runs.optimised(strategies.get(kind)(), rosenbrock, START, 400)
    assert rosenbrock(found.theta.astype(float)) > -12 > rosenbrock(START.astype(float))


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_holds_all_that_it_remembers(kind):
    strategy = strategies.get(kind)()
    arithmetic = runs.rules(strategy, SIZE)
    state = runs.optimised(strategy, sphere, START, 3)
    restored = snapshot.from_bytes(arithmetic, snapshot.to_bytes(state))
    assert same(restored, state)
    cohort = runs.evaluated(arithmetic, state, 200, 8, sphere)
    assert same(
        runs.made(arithmetic, restored, [cohort], 0.1), runs.made(arithmetic, state, [cohort], 0.1)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_another_strategy_are_refused(kind):
    """A peer must not leave out what it does not know: it would lead elsewhere."""
    strategy = strategies.get(kind)()
    other = strategies.get("openai-es" if strategy.needs_gaussian else "snes")()
    arithmetic, foreign = runs.rules(strategy, SIZE), runs.rules(other, SIZE)
    state, theirs = (initial_state(a, START, 0.3) for a in (arithmetic, foreign))
    cohort = runs.evaluated(arithmetic, state, 0, 8, sphere)
    weighting = strategy.weigh([cohort], runs.situation(arithmetic, state))
    with pytest.raises(ValueError, match="weights of squares"):
        apply(foreign, theirs, runs.terms(theirs, [cohort], weighting, 0.1))


@pytest.mark.parametrize("kind", KINDS)
def test_hyperparameters_out_of_range_are_named(kind):
    strategy = strategies.get(kind)
    for name in strategy.settings():
        if name != "shaping":
            with pytest.raises(ShoalError, match=f"strategy {kind}: .*-1"):
                strategies.make(kind, {name: -1.0})
