import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import noise, strategies
from protocol.errors import ShoalError
from protocol.strategies import Cohort, OpenAIES, Situation, multiplier

SIGMA = 0.1
PAIRS = st.lists(st.one_of(st.none(), st.tuples(st.integers(-3, 3), st.integers(-3, 3))))


def cohort(pairs, age=0, first=0):
    rows = [(np.nan, np.nan) if pair is None else pair for pair in pairs]
    plus, minus = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    return Cohort(first, 10 - age, age, plus.copy(), minus.copy())


def situation(unit=1.0, version=10, size=9):
    return Situation(version, size, SIGMA, unit)


@pytest.fixture(params=strategies.STRATEGIES)
def strategy(request):
    return strategies.get(request.param)()


def test_every_strategy_says_what_it_is(strategy):
    assert strategies.get(strategy.kind) is type(strategy)
    for property_ in ("accepts_stale", "needs_gaussian", "needs_acceptance"):
        assert isinstance(getattr(strategy, property_), bool)


@given(pairs=st.lists(st.booleans(), max_size=9), value=st.integers(-2, 2))
def test_equal_returns_make_no_step_whatever_the_strategy(pairs, value):
    cohorts = [
        cohort([(value, value) if there else None for there in pairs], age) for age in (0, 1)
    ]
    for kind in strategies.STRATEGIES:
        assert strategies.get(kind)().weigh(cohorts, situation()).rests


def test_nothing_and_one_direction(strategy):
    assert strategy.weigh([], situation()).rests
    assert strategy.weigh([cohort([])], situation()).rests
    assert strategy.weigh([cohort([None, None])], situation()).rests
    alone = strategy.weigh([cohort([(1, 0)])], situation())
    assert alone.members == 2 and not alone.rests


def test_an_infinite_return_is_refused(strategy):
    with pytest.raises(ValueError, match="inf"):
        strategy.weigh([cohort([(1, 2), (np.inf, 0)])], situation())


def test_half_a_direction_is_refused():
    with pytest.raises(ValueError, match="must miss both"):
        cohort([(1, np.nan)])
    with pytest.raises(ValueError, match="equal length"):
        Cohort(0, 0, 0, np.zeros(3), np.zeros(2))


def test_an_unknown_strategy_is_named():
    with pytest.raises(ShoalError, match=r"'ars2': must be one of .*openai-es"):
        strategies.get("ars2")


def test_multipliers_discount_by_age():
    assert [multiplier(age) for age in range(6)] == [60, 30, 20, 15, 12, 10]
    assert multiplier(59) == 1
    assert [multiplier(age, 0) for age in (0, 1, 59)] == [60, 60, 60]
    assert [multiplier(age, 2) for age in range(4)] == [60, 15, 6, 3]
    assert [multiplier(age, 3) for age in (0, 1, 2, 16)] == [60, 7, 2, 1]
    for age in (-1, 60):
        with pytest.raises(ValueError, match=f"age {age}"):
            multiplier(age)


@given(PAIRS, PAIRS, PAIRS)
@settings(deadline=None)
def test_openai_es_is_the_mean_of_ranked_noise_over_sigma(fresh, late, later):
    size, unit = 9, noise.unit("gaussian")
    cohorts = [cohort(fresh, 0, 100), cohort(late, 1, 50), cohort(later, 2, 0)]
    weighting = OpenAIES().weigh(cohorts, situation(unit))
    members = [
        (value, share, sign * row)
        for part, pairs, share in zip(cohorts, (fresh, late, later), (60, 30, 20), strict=True)
        for pair, row in zip(
            pairs,
            noise.directions("gaussian", 1, part.first_direction, len(pairs), size),
            strict=True,
        )
        if pair is not None
        for value, sign in zip(pair, (1, -1), strict=True)
    ]
    assert weighting.members == len(members)
    if len(members) < 2:
        assert weighting.rests
        return
    values = [value for value, _, _ in members]
    gradient = np.zeros(size)
    for value, share, row in members:
        below, above = sum(v < value for v in values), sum(v > value for v in values)
        gradient += share * (below - above) / (len(members) - 1) / 2 * row * unit / SIGMA
    gradient /= sum(share for _, share, _ in members)
    total = sum(
        noise.weighted_sum("gaussian", 1, part.first_direction, weights * share, size)
        for part, weights, share in zip(
            cohorts, weighting.weights, weighting.multipliers, strict=True
        )
    )
    assert np.allclose(total * weighting.scale, gradient, rtol=1e-12, atol=1e-12)


@given(PAIRS)
def test_missing_directions_weigh_nothing_and_take_no_rank(pairs):
    whole = OpenAIES().weigh([cohort(pairs)], situation())
    there = [pair for pair in pairs if pair is not None]
    thinned = OpenAIES().weigh([cohort(there)], situation())
    mask = np.array([pair is not None for pair in pairs], dtype=bool)
    assert whole.weights[0].dtype == np.int64
    assert not whole.weights[0][~mask].any()
    assert whole.weights[0][mask].tolist() == thinned.weights[0].tolist()
    assert (whole.scale, whole.members) == (thinned.scale, thinned.members)


@given(PAIRS, st.integers(0, 10))
def test_the_cut_into_cohorts_changes_no_weight(pairs, cut):
    whole = OpenAIES().weigh([cohort(pairs)], situation())
    parts = OpenAIES().weigh([cohort(pairs[:cut]), cohort(pairs[cut:], first=cut)], situation())
    assert np.concatenate(parts.weights).tolist() == whole.weights[0].tolist()
    assert parts.scale == whole.scale
