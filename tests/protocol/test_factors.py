import tomllib

import numpy as np
import pytest

from protocol import replay, state
from protocol.spec import RunSpec, SpecError, from_bytes, parse, to_bytes, to_toml
from protocol.state import CohortTerms, UpdateTerms
from tests.worker.reference import run_spec

FROZEN = {"frozen": ["layers.0.*"], "sigma_scale": {"*.bias": 0.25}}
OPTIMIZERS = ["normalised", "sgd", "adam"]


def spec_of(optimizer: str = "sgd", **policy: object) -> RunSpec:
    return run_spec(
        policy={"hidden": [5], **policy},
        optimizer={"kind": optimizer, "weight_decay": 0.01, "momentum": 0.0},
    )


def followed(spec: RunSpec, updates: int = 3) -> list[state.State]:
    rules, states = replay.arithmetic(spec), [replay.initial_state(spec)]
    for version in range(updates):
        cohort = CohortTerms(version * 4, version, np.array([3, -1, 2, -7]), 1)
        states.append(state.apply(rules, states[-1], UpdateTerms([cohort], 0.1, 0.5, 0.1)))
    return states


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_parameters_stay_bit_for_bit_and_others_move(optimizer):
    first, *_, last = followed(spec_of(optimizer, frozen=["layers.0.*"]))
    moved = last.theta != first.theta
    assert not moved[:25].any() and moved[25:].all()


def test_a_frozen_parameter_has_no_part_in_the_norm_of_a_step():
    spec = spec_of("normalised", frozen=["layers.0.*"], initialisation="zero")
    first, second, *_ = followed(spec)
    step = second.theta.astype(np.float64) - first.theta
    assert np.linalg.norm(step) == pytest.approx(0.5)


def test_a_scaled_parameter_moves_so_much_less():
    plain = followed(spec_of(initialisation="zero"), 1)[-1].theta
    scaled = followed(spec_of(initialisation="zero", sigma_scale={"*.bias": 0.25}), 1)[-1].theta
    factors = spec_of(sigma_scale={"*.bias": 0.25}).factors
    assert sorted(set(factors)) == [0.25, 1.0] and factors.tolist().count(0.25) == 7
    np.testing.assert_array_equal(scaled, plain * factors.astype(np.float32))


def test_without_patterns_nothing_is_multiplied():
    assert spec_of().factors is None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"frozen": ["layer.0.*"]}, ["'layer.0.*'", "they are layers.0.weight, layers.0.bias"]),
        ({"sigma_scale": {"gru.*": 2.0}}, ["policy.sigma_scale has 'gru.*'"]),
        ({"frozen": ["*"]}, ["nothing to train"]),
        ({"sigma_scale": {"*.bias": 2.0, "layers.1.*": 3.0}}, ["both of layers.1.bias"]),
        ({"frozen": ["a b"]}, ["a name or a pattern"]),
        ({"sigma_scale": {"*": 0.0}}, ["more than 0"]),
    ],
)
def test_patterns_that_can_not_be_meant_are_told_of(policy, words):
    with pytest.raises(SpecError) as caught:
        spec_of(**policy)
    assert all(word in str(caught.value) for word in words)


def test_patterns_come_back_from_bytes_and_from_toml():
    spec = spec_of(frozen=["layers.0.w*"], sigma_scale={"*.bias": 0.25, "layers.1.weight": 2.0})
    assert from_bytes(to_bytes(spec)) == spec
    again = parse(tomllib.loads(to_toml(spec)))
    assert again == spec and again.digest == spec.digest
