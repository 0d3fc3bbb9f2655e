"""Networks and actions in JAX are those of our own kernels, but for the last bits of float32."""

import jax
import numpy as np
import pytest

from protocol.policies import Activation
from protocol.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from tests.worker.reference import run_spec
from worker.compiled.booking import Lots
from worker.compiled.networks import ACTIVATIONS, network
from worker.compiled.values import Choosing, inputs
from worker.evaluation.blocks import Room
from worker.evaluation.flattening import _writer
from worker.policies import making

LANES = 6
WIDE = {"kind": "mlp", "hidden": [40, 33], "activation": "relu"}
STOCHASTIC = {"choice": "sample", "action_noise": "learned"}
CASES = {
    "linear": ("CartPole-v1", {"kind": "linear"}),
    "mlp": ("CartPole-v1", {"kind": "mlp", "hidden": [5, 4]}),
    "wide": ("Pendulum-v1", WIDE),
    "gru": ("Pendulum-v1", {"kind": "gru", "hidden": [5, 3]}),
    "lstm": ("CartPole-v1", {"kind": "lstm", "hidden": [4, 6]}),
    "cnn": ("ToyAlbum-v0", {"kind": "cnn", "hidden": [7], "convolutions": [[4, 3, 2], [3, 2, 1]]}),
    "tabular": ("ToyLadder-v0", {"kind": "tabular"}),
    "tables of several choices": ("Blackjack-v1", {"kind": "tabular"}),
    "squashed": ("Pendulum-v1", {"kind": "linear", "squash": "tanh"}),
    "parts": ("ToyGarden-v0", {"kind": "linear"}),
    "parts, drawn, with noise": ("ToyGarden-v0", {"kind": "linear", **STOCHASTIC}),
    "predicted noise": ("Pendulum-v1", {"kind": "linear", "action_noise": "predicted"}),
}


def sample(space, rng):
    """A random value of a space, as environments of JAX give it."""
    match space:
        case Box(dtype="uint8"):
            return rng.integers(0, 256, space.shape, dtype=np.uint8)
        case Box():
            return rng.normal(size=space.shape).astype(np.float32)
        case Discrete():
            return np.int32(space.start + rng.integers(space.n))
        case MultiBinary():
            return rng.integers(0, 2, space.shape, dtype=np.int8)
        case MultiDiscrete():
            starts = space.start or (0,) * len(space.choices)
            return (rng.integers(0, space.choices) + starts).astype(np.int32).reshape(space.shape)
        case Tuple():
            return tuple(sample(part, rng) for part in space.spaces)
        case Dict():
            return dict(zip(space.names, (sample(part, rng) for part in space.spaces), strict=True))


def as_target(space, value):
    """What our own lanes are given of it."""
    if isinstance(space, Tuple | Dict | MultiDiscrete):
        vector = np.zeros(space.size, np.float32)
        _writer(space, vector)(value)
        return vector
    return value


def test_every_activation_has_a_form():
    assert set(ACTIVATIONS) == set(Activation.__args__)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_are_those_of_our_kernels(name):
    from worker.policies.elementwise import compiled

    x = np.linspace(-30.0, 30.0, 1001, dtype=np.float32)
    expected = x.copy()
    if name == "tanh":
        expected = np.tanh(x)
    elif name == "relu":
        expected = np.maximum(x, 0)
    else:
        import ctypes

        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        kind(compiled(name).address)(expected.ctypes.data, expected.size)
    np.testing.assert_allclose(ACTIVATIONS[name](x), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("case", CASES, ids=CASES.keys())
def test_policies_act_as_our_kernels(case):
    environment_id, fields = CASES[case]
    spec = run_spec(environment_id, policy=fields)
    space = spec.environment.observation
    rng = np.random.default_rng(3)
    policy = making.make(spec, LANES)
    room = Room(spec, policy, LANES, 1)
    net, choosing = network(spec), Choosing(spec)
    np.testing.assert_array_equal(net.order, policy.order)
    rows = rng.normal(0, 0.5, (LANES, spec.size)).astype(np.float32)
    room.parameters[:LANES] = rows
    lanes = np.arange(LANES)
    for lane in lanes:
        policy.begin(lane, lane, -1, 100 + lane)
    act = policy.prepare_act(lanes, room.parameters, room.view(None))
    lots = Lots(spec.seed, spec.policy.action_deviation, choosing.shares, choosing.reals)
    seeds, quiet = 100 + lanes, np.zeros(LANES, np.bool_)

    @jax.jit
    def step(rows, memory, seen, drawn):
        def one(row, memory, seen, drawn):
            outputs, memory = net.apply(row, memory, inputs(space, seen))
            return outputs, memory, choosing.action(outputs, row, drawn)

        return jax.vmap(one)(rows, memory, seen, drawn)

    memory = jax.tree.map(lambda part: np.zeros((LANES, *part.shape), np.float32), net.memory)
    for number in range(3):
        seen = [sample(space, rng) for _ in lanes]
        for lane in lanes:
            policy.targets[lane][...] = as_target(space, seen[lane])
        expected = act()
        drawn = lots.next(1, LANES, lanes, seeds, np.full(LANES, number), quiet)
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *seen)
        outputs, memory, actions = step(rows, memory, stacked, [part[0] for part in drawn])
        if spec.policy.action_noise == "none":
            np.testing.assert_allclose(outputs, policy.outputs[:LANES], rtol=2e-5, atol=2e-6)
        for lane in lanes:
            ours = jax.tree.map(lambda part, lane=lane: np.asarray(part)[lane], actions)
            theirs = expected[lane]
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
                assert np.shape(a) == np.shape(b)
