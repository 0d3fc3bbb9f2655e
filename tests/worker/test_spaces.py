"""Values of any space: Gymnasium's own ways with them are what ours must agree with."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import utils
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import spaces
from protocol.section import plain
from protocol.streams import Domain, words
from tests.protocol.test_spaces import ANY
from tests.worker import reference
from tests.worker.reference import run_spec
from worker.evaluation.flattening import flattened
from worker.evaluation.spaces import actions, observations
from worker.policies import sampling
from worker.policies.actions import Actions
from worker.policies.inputs import Inputs


def gymnasium_space(space: spaces.Space) -> Any:
    match space:
        case spaces.Box():
            low, high = (np.reshape(b, space.shape) for b in (space.low, space.high))
            return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        case spaces.Discrete():
            return gymnasium.spaces.Discrete(space.n, start=space.start)
        case spaces.MultiDiscrete():
            start = np.reshape(space.start or [0] * len(space.choices), space.shape)
            return gymnasium.spaces.MultiDiscrete(
                np.reshape(space.choices, space.shape), start=start
            )
        case spaces.MultiBinary():
            return gymnasium.spaces.MultiBinary(space.shape)
        case spaces.Tuple():
            return gymnasium.spaces.Tuple([gymnasium_space(part) for part in space.spaces])
    parts = zip(space.names, map(gymnasium_space, space.spaces), strict=True)
    return gymnasium.spaces.Dict(list(parts))


class Sampling(gymnasium.Env[Any, Any]):
    def __init__(self, space: spaces.Space) -> None:
        self.observation_space = self.action_space = gymnasium_space(space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.observation_space.seed(seed)
        self.value = self.observation_space.sample()
        return self.value, {}


@settings(max_examples=50, deadline=None)
@given(space=ANY, seed=st.integers(0, 1 << 30))
def test_inputs_are_what_gymnasium_flattens_observations_to(space, seed):
    environment = Sampling(space)
    around, inputs = flattened(environment, space), Inputs(space, 3)
    observation, _ = around.reset(seed=seed)
    inputs.targets[1][...] = observation
    inputs.prepare_read(np.array([1]))()
    expected = utils.flatten(environment.observation_space, environment.value)
    np.testing.assert_array_equal(inputs.vectors[1], expected.astype(np.float32))
    np.testing.assert_array_equal(inputs.vectors[1], reference.flat(space, environment.value))
    assert space.size == utils.flatdim(environment.observation_space)
    assert not inputs.vectors[[0, 2]].any()


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (spaces.Tuple(spaces=(spaces.Discrete(n=3, start=2),)), [(1,), (5,), (2, 2), ()]),
        (
            spaces.MultiDiscrete(choices=(2, 3), shape=(2,), start=(0, 1)),
            [[2, 1], [0, 0], [-1, 1], [0, 4], [0]],
        ),
        (spaces.Dict(names=("a",), spaces=(spaces.Box(shape=(2,)),)), [{}, {"a": [1, 2, 3]}]),
    ],
)
def test_an_observation_outside_of_its_space_is_an_error_not_another_one(space, values):
    environment = Sampling(spaces.Discrete(n=1))
    around = flattened(environment, space)
    for value in values:
        environment.reset = lambda value=value, **_: (value, {})
        with pytest.raises((ValueError, KeyError, IndexError)):
            around.reset(seed=0)


@settings(max_examples=50, deadline=None)
@given(space=ANY)
def test_spaces_are_read_in_the_words_of_the_spec(space):
    # Gymnasium keeps bounds in float32.
    found = actions(Sampling(space))
    assert found == actions(Sampling(found))
    assert spaces.fits(space, observations(Sampling(space)))
    assert spaces.fits(found, space)


@pytest.mark.filterwarnings("ignore:.*Casting input x")  # of a Box without a shape
@settings(max_examples=50, deadline=None)
@given(
    space=ANY,
    squash=st.sampled_from(["clip", "tanh"]),
    sampled=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_actions_lie_in_their_space_and_are_those_of_each_lane(space, squash, sampled, seed):
    space = actions(Sampling(space))
    boxes = all(isinstance(part, spaces.Box) for part in spaces.leaves(space))
    choice = "sample" if sampled and not boxes else "argmax"
    policy = {"kind": "linear", "squash": squash, "choice": choice}
    spec = run_spec(environment={"action": plain(space)}, policy=policy)
    made = Actions(spec, 5)
    outputs = np.random.default_rng(seed).normal(0, 2, (5, space.size)).astype(np.float32)
    for lane in range(5):
        made.begin(lane, seed + lane)
    lanes = np.array([4, 1, 2])
    taken = [made.prepare(lanes, given, lanes, None)() for given in (outputs, outputs[::-1].copy())]
    kept = [[utils.flatten(gymnasium_space(space), each) for each in step] for step in taken]
    for position, lane in enumerate(lanes):
        drawn = words(spec.seed, Domain.ACTION, seed + int(lane), 500) >> np.uint64(11)
        numbers = iter((drawn / 2.0**53).tolist()) if choice == "sample" else None
        for step in range(2):
            action = taken[step][position]
            assert gymnasium_space(space).contains(action)
            row = outputs[position] if step == 0 else outputs[::-1][position]
            expected = reference.decode(spec, space, row, numbers)
            flat = utils.flatten(gymnasium_space(space), expected)
            np.testing.assert_array_equal(kept[step][position], flat)
    made.prepare(lanes, -outputs, lanes, None)()
    again = [[utils.flatten(gymnasium_space(space), each) for each in step] for step in taken]
    np.testing.assert_array_equal(np.array(again), np.array(kept))  # nobody writes over them


def test_exp_is_accurate_and_the_same_everywhere():
    x = np.concatenate([np.linspace(-30, 30, 20_001), [-700.5, -699.0, 0.0, 700.0, -1e300]])
    found = np.array([sampling.exp(value) for value in x])
    np.testing.assert_allclose(found, np.exp(np.where(x < -700, -np.inf, x)), rtol=3e-16)
    assert found[-5] == 0.0 and found[-3] == 1.0
    assert found.tobytes() == np.array([sampling.exp.py_func(value) for value in x]).tobytes()


def test_choices_are_drawn_with_the_probabilities_of_the_softmax():
    logits, room, block = np.float32([0.5, -1.0, 2.0]), np.empty(3), np.empty(8, np.uint64)
    counts, on = np.zeros(3), 0
    for number in range(20_000):
        share = sampling.uniform(np.uint64(7), np.uint64(3), number, block)
        counts[sampling.softmax_choice(logits, share, room)] += 1
        on += sampling.switched_on(np.float32(-0.7), share)
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(counts / 20_000, expected, atol=0.012)
    assert abs(on / 20_000 - 1 / (1 + np.exp(0.7))) < 0.012


def test_outputs_without_a_finite_maximum_choose_the_first_maximum():
    room = np.empty(3)
    infinite = np.float32([1.0, np.inf, np.inf])
    assert sampling.softmax_choice(infinite, 0.99, room) == 1
    assert sampling.softmax_choice(np.float32([np.nan, 1.0, 2.0]), 0.5, room) == 0
    assert sampling.softmax_choice(np.float32([-np.inf, 0.0, -np.inf]), 0.0, room) == 1
    assert sampling.switched_on(np.float32(np.inf), 1 - 2.0**-53)
    assert not sampling.switched_on(np.float32(-np.inf), 0.0)
