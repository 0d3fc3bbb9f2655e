"""Learners in a run spec: their fields, what these forbid, and what parameters stand for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import learners, replay
from protocol import spec as run_spec
from protocol.spec import PolicySpec, RunSpec, SpecError

GRID: dict[str, Any] = {
    "id": "jax:GridWorld-v0",
    "backend": "jax",
    "observation": {"kind": "discrete", "n": 96},
    "action": {"kind": "discrete", "n": 4},
}


def spec_of(**tables: Any) -> RunSpec:
    """A run of learners on the grid, with changes to its tables."""
    raw = {"name": "grid", "environment": GRID, "policy": {"kind": "q-learning"}, **tables}
    for table, usual in (("environment", GRID), ("policy", {"kind": "q-learning"})):
        raw[table] = {**usual, **tables.get(table, {})}
    return run_spec.parse(raw)


def test_the_parameters_are_the_hyperparameters_and_begin_with_zeros() -> None:
    spec = spec_of()
    assert [tensor.name for tensor in spec.tensors] == list(learners.HYPERPARAMETERS)
    assert spec.size == 4
    np.testing.assert_array_equal(replay.initial_state(spec).theta, 0.0)


def test_one_of_them_may_stay_as_it_begins() -> None:
    spec = spec_of(policy={"frozen": ["discount"], "sigma_scale": {"optimism": 5.0}})
    assert spec.factors is not None
    np.testing.assert_array_equal(spec.factors, [1.0, 0.0, 1.0, 5.0])


def test_an_older_spec_has_the_bytes_that_it_had() -> None:
    written = run_spec.to_plain(spec_of())["policy"]
    assert not {"agents", "training_steps", "epsilon", "optimism"} & written.keys()


def test_zero_stands_for_what_the_spec_says() -> None:
    policy = PolicySpec(kind="q-learning", learning_rate=0.2, discount=0.95, optimism=3.0)
    meant = learners.meant(policy, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(meant, [[0.2, 0.95, 0.1, 3.0]])
    warm = PolicySpec(kind="q-learning", exploration="softmax", temperature=0.7)
    np.testing.assert_allclose(learners.meant(warm, np.zeros((1, 4), np.float32))[0, 2], 0.7)


def test_one_more_is_e_times_the_odds_the_temperature_or_one_more_optimism() -> None:
    policy = PolicySpec(kind="q-learning", learning_rate=0.2, discount=0.5, epsilon=0.5)
    meant = learners.meant(policy, np.ones((1, 4), np.float32))[0]
    np.testing.assert_allclose(meant[0] / (1 - meant[0]), math.e * 0.25)
    np.testing.assert_allclose(meant[1:3], math.e / (1 + math.e))
    assert meant[3] == 1.0
    warm = PolicySpec(kind="q-learning", exploration="softmax", temperature=0.5)
    np.testing.assert_allclose(learners.meant(warm, np.ones((1, 4), np.float32))[0, 2], math.e / 2)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
    st.sampled_from(["epsilon-greedy", "softmax"]),
)
def test_whatever_the_parameters_are_hyperparameters_are_in_their_ranges(
    theta: list[float], exploration: Any
) -> None:
    policy = PolicySpec(kind="q-learning", exploration=exploration)
    meant = learners.meant(policy, np.array([theta], np.float32))
    seen = meant.astype(np.float32)
    assert np.isfinite(meant).all()
    assert (seen[0, :2] >= 0.0).all() and (seen[0, :2] <= 1.0).all()
    assert seen[0, 2] > 0.0
    assert exploration == "softmax" or seen[0, 2] <= 1.0


def test_its_steps_are_those_of_all_agents() -> None:
    spec = spec_of(policy={"agents": 10, "training_steps": 5000, "trial_episodes": 2})
    assert spec.longest == 10 * (5000 + 2 * 1000)
    shorter = spec_of(environment={"max_steps": 50}, policy={"agents": 10, "training_steps": 5000})
    assert shorter.longest == 10 * (5000 + 50)
    assert spec_of(environment={"max_steps": 50}, policy={"kind": "linear"}).longest == 50


BOX = {"kind": "box", "shape": [4]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"environment": {"id": "CliffWalking-v1", "backend": "gymnasium"}},
        "learners are computed by JAX",
    ),
    ({"environment": {"equivalent_backends": True}}, "only JAX has learners"),
    ({"environment": {"observation": BOX}}, "not all discrete"),
    ({"environment": {"action": {**BOX, "low": [0.0] * 4, "high": [1.0] * 4}}}, "single choice"),
    ({"environment": {"action": {"kind": "discrete", "n": 65}}}, "up to 64"),
    (
        {"environment": {"observation": {"kind": "discrete", "n": 200_000}}},
        "estimates for a member",
    ),
    ({"policy": {"training_steps": 400_000}}, "give fewer in policy.agents"),
    ({"policy": {"agents": 0}}, "policy.agents is 0"),
    ({"policy": {"learning_rate": 1.0}}, "policy.learning_rate is 1.0"),
    ({"policy": {"exploration": "never"}}, "policy.exploration is"),
    ({"policy": {"choice": "sample"}}, "policy.exploration says how it acts"),
    ({"environment": {"cap": 2.0}}, "environment.cap 2.0"),
    ({"environment": {"alive_bonus": 1.0}}, "environment.alive_bonus 1.0"),
    ({"environment": {"wrappers": [{"kind": "action-repeat", "n": 2}]}}, "leave them out"),
    ({"normalizer": {"enabled": True}}, 'policy.kind "q-learning", which looks'),
]


@pytest.mark.parametrize(("changes", "told"), REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(**changes)
    assert told in str(refused.value)
