"""What an update tells, against the formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coordinator.diagnostics import BLOCK, diagnose, pair_signal_to_noise, tie_share
from coordinator.pool.events import Contribution, SessionId
from protocol.state import State

ALL_AT = SessionId("worker", "session")


def part(first: int, returns: np.ndarray) -> Contribution:
    lengths = np.ones(returns.shape, dtype=np.int64)
    return Contribution(ALL_AT, 3, first, returns, lengths, b"")


def state(version: int, theta: np.ndarray, sigmas: np.ndarray | None = None) -> State:
    return State(version, theta.astype(np.float32), {}, 0.25, None, sigmas=sigmas)


@pytest.mark.parametrize("size", [7, 3 * BLOCK + 11])
def test_an_update_tells_what_the_formulas_say(size: int) -> None:
    draw = np.random.default_rng(2)
    thetas = [draw.normal(size=size).astype(np.float32) for _ in range(3)]
    states = [state(version, theta) for version, theta in enumerate(thetas)]
    returns = draw.integers(0, 9, size=(12, 2)).astype(float)
    returns[4] = np.nan  # it failed, and counts nowhere
    found = diagnose([part(0, returns[:5]), part(5, returns[5:])], *states)

    earlier, before, after = (theta.astype(np.float64) for theta in thetas)
    step, last = after - before, before - earlier
    lengths = np.linalg.norm(step), np.linalg.norm(last), np.linalg.norm(before)
    assert found.step_norm == pytest.approx(lengths[0], rel=1e-5)
    assert found.step_cosine == pytest.approx(step @ last / (lengths[0] * lengths[1]), abs=1e-5)
    assert found.theta_norm == pytest.approx(lengths[2], rel=1e-5)
    assert found.sigma_ratio == pytest.approx(0.25 * math.sqrt(size) / lengths[2], rel=1e-5)
    plus, minus = np.delete(returns, 4, axis=0).T
    signal, noise = ((plus - minus) ** 2).mean(), np.var(plus + minus, ddof=1)
    assert found.pair_signal_to_noise == pytest.approx(signal / noise)
    everybody = np.concatenate([plus, minus]).tolist()
    tied = [value for value in everybody if everybody.count(value) > 1]
    assert found.tie_share == len(tied) / len(everybody) > 0


def test_a_sigma_for_each_parameter_is_measured_by_its_length() -> None:
    before = state(0, np.full(4, 2.0), sigmas=np.array([3.0, 4.0, 0.0, 0.0]))
    assert diagnose([], None, before, before).sigma_ratio == 5.0 / 4.0


def test_parameters_that_move_less_or_not_are_measured_as_they_are_perturbed() -> None:
    size = BLOCK + 4
    theta, factors = np.full(size, 2.0), np.ones(size)
    theta[:BLOCK], factors[:BLOCK] = 9.0, 0.0  # frozen
    factors[-1] = 3.0
    before = state(0, theta)
    found = diagnose([], None, before, before, factors)
    assert found.theta_norm == 4.0
    assert found.sigma_ratio == 0.25 * math.sqrt(3 + 9) / 4.0
    adapted = state(0, theta, sigmas=np.full(size, 0.5))
    assert diagnose([], None, adapted, adapted, factors).sigma_ratio == 0.5 * math.sqrt(12) / 4.0


def test_pairs_tell_a_slope_from_noise() -> None:
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(4000, 2))
    assert pair_signal_to_noise(noise) == pytest.approx(1.0, abs=0.15)
    slope = 5.0 * draw.normal(size=(4000, 1)) * [[1.0, -1.0]]
    assert pair_signal_to_noise(noise + slope) == pytest.approx(51.0, rel=0.15)  # (2 + 100) / 2
    luck = 5.0 * draw.normal(size=(4000, 1))  # of the seed that both share
    assert pair_signal_to_noise(noise + luck) < 0.1


def test_what_tells_nothing_is_not_a_number() -> None:
    still = state(1, np.zeros(5))
    found = diagnose([], None, still, still)
    assert found.step_norm == found.theta_norm == 0.0
    for value in (
        found.pair_signal_to_noise,
        found.tie_share,
        found.step_cosine,
        found.sigma_ratio,
        pair_signal_to_noise(np.ones((5, 1))),
        pair_signal_to_noise(np.ones((1, 2))),
        pair_signal_to_noise(np.ones((5, 2))),
        pair_signal_to_noise(np.full((5, 2), 1e308)),
    ):
        assert math.isnan(value)


@pytest.mark.parametrize(
    ("returns", "share"), [([1.0, 2.0, 3.0], 0.0), ([2.0, 1.0, 2.0, 3.0], 0.5), ([4.0, 4.0], 1.0)]
)
def test_ties_are_those_who_are_not_alone(returns: list[float], share: float) -> None:
    assert tie_share(np.array(returns)) == share
