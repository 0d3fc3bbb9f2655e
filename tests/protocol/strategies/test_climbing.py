"""Hill climbers step onto their best members, and nowhere else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import noise, optimizers, strategies
from protocol.errors import ShoalError
from protocol.state import Arithmetic, CohortTerms, UpdateTerms, apply, initial_state
from protocol.strategies import Cohort, Situation, Weighting

SEED, SIZE, SIGMA = 11, 37, 0.3
VALUES = st.integers(-3, 3).map(float)


def cohort(plus: list[float], minus: list[float] | None = None, first: int = 5) -> Cohort:
    mirrored = None if minus is None else np.array(minus)
    return Cohort(first, 4, 0, np.array(plus), mirrored)


def weigh(kind: str, *cohorts: Cohort, noise_kind: str = "gaussian", **own: object) -> Weighting:
    situation = Situation(4, SIZE, SIGMA, noise.unit(noise_kind))
    if kind == "hill-climbing":
        own = {"elite_weights": "equal", **own}
    return strategies.make(kind, own).weigh(cohorts, situation)


def weights(kind: str, *cohorts: Cohort, **own: object) -> list[int]:
    return np.concatenate(weigh(kind, *cohorts, **own).weights).tolist()


def landed(weighting: Weighting, first: int, noise_kind: str) -> np.ndarray:
    """Where sgd with learning rate 1 and without momentum gets from there."""
    rules = Arithmetic(noise_kind, SEED, optimizers.make("sgd", {"momentum": 0.0}), SIZE)
    start = initial_state(rules, np.linspace(-2, 2, SIZE, dtype=np.float32), SIGMA)
    terms = UpdateTerms(
        (CohortTerms(first, 0, weighting.weights[0], weighting.multipliers[0]),),
        weighting.scale,
        1.0,
        SIGMA,
    )
    return apply(rules, start, terms).theta


def members(first: int, count: int, noise_kind: str, per_direction: int) -> np.ndarray:
    theta = np.linspace(-2, 2, SIZE, dtype=np.float32)
    return noise.members(noise_kind, SEED, first, count, theta, SIGMA, per_direction=per_direction)


def test_elites_are_the_best_members() -> None:
    plus = [3.0, 1.0, 9.0, 4.0, 0.0]
    assert weights("hill-climbing", cohort(plus)) == [0, 0, 1, 1, 0]  # 0.4 of 5
    assert weights("hill-climbing", cohort(plus), elites=0.61) == [1, 0, 1, 1, 0]
    assert weights("hill-climbing", cohort(plus), elites=4) == [1, 1, 1, 1, 0]
    assert weights("random-search", cohort(plus)) == [0, 0, 1, 0, 0]


def test_mirrored_elites_pull_back_and_pairs_of_them_cancel() -> None:
    plus, minus = [3.0, 1.0, 9.0], [8.0, 2.0, 7.0]
    assert weights("hill-climbing", cohort(plus, minus), elites=3) == [-1, 0, 0]
    assert weights("random-search", cohort([1.0, 2.0], [5.0, 0.0])) == [-1, 0]


def test_elites_may_weigh_by_how_far_they_are_above_the_worst() -> None:
    plus = [1.0, 5.0, 3.0, 0.0, 2.0]
    found = weights("hill-climbing", cohort(plus), elites=3, elite_weights="returns")
    assert found == [0, 32767, 19660, 0, 13107]
    huge = weights("hill-climbing", cohort([1e308, -1e308, 0.0]), elites=2, elite_weights="returns")
    assert huge == [32767, 0, 16384]


def test_nobody_is_an_elite_who_is_no_better_than_the_worst() -> None:
    assert weights("hill-climbing", cohort([-1.0, -1.0, -1.0, 0.5, -1.0]), elites=4) == [
        0, 0, 0, 1, 0,
    ]  # fmt: skip
    assert weigh("hill-climbing", cohort([2.0, 2.0, 2.0])).rests
    assert weigh("hill-climbing", cohort([2.0, 2.0], [2.0, 2.0]), elite_weights="returns").rests
    assert weigh("random-search", cohort([2.0])).rests


@pytest.mark.parametrize("noise_kind", noise.KINDS)
def test_a_step_ends_right_at_the_best_member_or_at_the_mean_of_the_elites(noise_kind: str) -> None:
    plus = [3.0, 1.0, 9.0, 4.0]
    alone = weigh("random-search", cohort(plus), noise_kind=noise_kind)
    rows = members(5, 4, noise_kind, 1)
    np.testing.assert_allclose(landed(alone, 5, noise_kind), rows[2], rtol=0, atol=3e-7)
    if noise_kind == noise.RADEMACHER:
        np.testing.assert_array_equal(landed(alone, 5, noise_kind), rows[2])
    elites = weigh("hill-climbing", cohort(plus), elites=3, noise_kind=noise_kind)
    mean = rows[[0, 2, 3]].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(landed(elites, 5, noise_kind), mean, rtol=0, atol=3e-7)
    mirrored = weigh("random-search", cohort(plus, [1.0, 2.0, 3.0, 40.0]), noise_kind=noise_kind)
    rows = members(5, 4, noise_kind, 2)
    np.testing.assert_allclose(landed(mirrored, 5, noise_kind), rows[7], rtol=0, atol=3e-7)


@given(
    st.lists(VALUES, min_size=1, max_size=20),
    st.floats(0.01, 1.0) | st.integers(2, 9).map(float),
    st.sampled_from(["equal", "returns"]),
    st.data(),
)
def test_cut_and_order_change_no_weight(values, elites, elite_weights, data) -> None:
    own = {"elites": elites, "elite_weights": elite_weights}
    whole = weigh("hill-climbing", cohort(values, first=0), **own)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, len(values))))), len(values)]
    spans = [(a, b) for a, b in itertools.pairwise(cuts) if a < b]
    order = data.draw(st.permutations(spans))
    parts = weigh("hill-climbing", *(cohort(values[a:b], first=a) for a, b in order), **own)
    by_first = [
        row for _, row in sorted(zip(order, parts.weights, strict=True), key=lambda x: x[0])
    ]
    np.testing.assert_array_equal(np.concatenate(by_first), whole.weights[0])
    assert parts.scale == whole.scale
    assert whole.rests == (len(set(values)) == 1)


@pytest.mark.parametrize("kind", ["hill-climbing", "random-search"])
def test_sigma_moves_with_success_within_its_bounds(kind: str) -> None:
    strategy = strategies.make(
        kind, {"sigma_better": 2.0, "sigma_worse": 0.5, "sigma_least": 0.1, "sigma_most": 1.0}
    )
    assert strategy.needs_acceptance
    assert strategy.judged_sigma(0.3, better=True) == 0.6
    assert strategy.judged_sigma(0.3, better=False) == 0.15
    assert strategy.judged_sigma(0.6, better=True) == 1.0
    assert strategy.judged_sigma(0.15, better=False) == 0.1


def test_steps_that_are_always_kept_need_no_acceptance() -> None:
    assert not strategies.make("hill-climbing", {"keep": "always"}).needs_acceptance
    with pytest.raises(ShoalError, match="keep = often"):
        strategies.make("hill-climbing", {"keep": "often"})
    with pytest.raises(ShoalError, match="elite_weights = other"):
        strategies.make("hill-climbing", {"elite_weights": "other"})
