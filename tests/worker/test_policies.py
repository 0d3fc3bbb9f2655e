import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol import normalizer
from protocol.policy_file import from_tensors, to_tensors
from protocol.replay import initial_state
from protocol.spec import RunSpec
from tests.worker import reference
from tests.worker.reference import run_spec
from worker.policies import making
from worker.policies.actions import Actions
from worker.policies.policy import Policy, View


def spec_of(hidden: list[int], inputs: int = 3, actions: int = 2, **policy: Any) -> RunSpec:
    kind = {"kind": "mlp", "hidden": hidden} if hidden else {"kind": "linear"}
    return run_spec(
        environment={
            "observation": reference.box(inputs),
            "action": {"kind": "discrete", "n": actions},
        },
        policy={**kind, **policy},
    )


def plain_view(spec: RunSpec) -> View:
    none, nothing = np.empty(0, np.float32), np.empty(0)
    sums = np.zeros((0, spec.environment.observation.size, 4), np.uint64)
    return View(none, none, np.float32(10), nothing, nothing, sums)


def policy_with(spec: RunSpec, observations: Any, rows: Any) -> tuple[Policy, Any]:
    """A policy that has seen `observations`, one lane each, and its arranged parameters."""
    policy = making.make(spec, len(observations))
    for target, observation in zip(policy.targets, observations, strict=True):
        target[...] = observation
    policy.rows[:] = np.arange(len(rows))
    arranged = np.ascontiguousarray(rows[:, policy.order])
    return policy, arranged


def outputs_of(spec: RunSpec, observations: Any, rows: Any) -> Any:
    policy, arranged = policy_with(spec, observations, rows)
    assert policy.act(np.arange(len(rows)), arranged, plain_view(spec)) is not None
    return policy.outputs


@settings(max_examples=60, deadline=None)
@given(
    inputs=st.integers(1, 40),
    hidden=st.lists(st.integers(1, 40), max_size=3),
    actions=st.integers(1, 20),
    activation=st.sampled_from(["tanh", "relu"]),
    seed=st.integers(0, 2**32 - 1),
    sparse=st.booleans(),
)
def test_forward_is_the_plain_sum_in_order(inputs, hidden, actions, activation, seed, sparse):
    spec = spec_of(hidden, inputs, actions, activation=activation)
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (5, spec.size)).astype(np.float32)
    observations = rng.normal(0, 3, (5, inputs)).astype(np.float32)
    if sparse:
        observations[rng.random(observations.shape) < 0.7] = 0.0
    found = outputs_of(spec, observations, rows)
    for lane in range(5):
        expected = reference.outputs(spec, rows[lane], observations[lane])
        np.testing.assert_array_equal(found[lane], expected)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [[], [32], [64, 64]])
def test_forward_agrees_with_torch(hidden, activation):
    torch = pytest.importorskip("torch")
    spec = spec_of(hidden, 17, 6, activation=activation)
    row = reference.theta(spec, 3)
    modules, begin = [], 0
    for layer, (inputs, many) in enumerate(spec.layers):
        if layer:
            modules.append(torch.nn.Tanh() if activation == "tanh" else torch.nn.ReLU())
        linear = torch.nn.Linear(inputs, many)
        with torch.no_grad():
            linear.weight.copy_(
                torch.from_numpy(row[begin:][: inputs * many].reshape(many, inputs))
            )
            begin += inputs * many
            linear.bias.copy_(torch.from_numpy(row[begin:][:many]))
            begin += many
        modules.append(linear)
    observations = np.random.default_rng(4).normal(size=(50, 17)).astype(np.float32)
    found = outputs_of(spec, observations, np.tile(row, (50, 1)))
    with torch.no_grad():
        expected = torch.nn.Sequential(*modules)(torch.from_numpy(observations)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@settings(max_examples=30, deadline=None)
@given(lanes=st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
def test_a_lane_acts_the_same_in_any_company(lanes):
    spec = spec_of([9], 3, 5)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(8, spec.size)).astype(np.float32)
    policy, arranged = policy_with(spec, rng.normal(size=(8, 3)), rows)
    policy.act(np.arange(8), arranged, plain_view(spec))
    alone = policy.outputs.copy()
    policy.act(np.array(lanes), arranged, plain_view(spec))
    np.testing.assert_array_equal(policy.outputs[: len(lanes)], alone[lanes])


def test_lanes_may_share_a_row():
    spec = spec_of([4], 3, 4)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3, spec.size)).astype(np.float32)
    policy, arranged = policy_with(spec, rng.normal(size=(3, 3)), rows)
    policy.rows[:] = 2
    policy.act(np.arange(3), arranged, plain_view(spec))
    for lane in range(3):
        expected = reference.outputs(spec, rows[2], policy.observations[lane])
        np.testing.assert_array_equal(policy.outputs[lane], expected)


def test_the_first_maximum_is_chosen_from_the_start_of_the_space():
    spec = run_spec("ToyLadder-v0", policy={"kind": "linear"})
    policy, arranged = policy_with(spec, [5, 8], np.zeros((2, spec.size), np.float32))
    chosen = policy.act(np.arange(2), arranged, plain_view(spec))
    assert list(chosen) == [3, 3]  # all outputs equal
    assert all(isinstance(action, np.int64) for action in chosen)
    np.testing.assert_array_equal(policy.observations, [[1, 0, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize("squash", ["clip", "tanh"])
def test_continuous_actions_lie_in_their_bounds(squash):
    spec = run_spec("ToyMiser-v0", policy={"hidden": [4], "squash": squash})
    rng = np.random.default_rng(2)
    rows = rng.normal(0, 4, (6, spec.size)).astype(np.float32)
    observations = rng.integers(0, 256, (6, 2, 3))
    policy, arranged = policy_with(spec, observations, rows)
    actions = policy.act(np.arange(6), arranged, plain_view(spec))
    for lane, action in enumerate(actions):
        assert action.shape == (2, 1) and action.dtype == np.float32
        assert (action >= [[-1.0], [0.0]]).all() and (action <= [[1.0], [3.0]]).all()
        seen = reference.see(spec, observations[lane], None)
        expected = reference.act(spec, rows[lane], seen, [])
        np.testing.assert_array_equal(action, expected)
    kept = actions[0].copy()
    for target in policy.targets:
        target[...] = 0
    policy.act(np.arange(6), arranged, plain_view(spec))
    np.testing.assert_array_equal(actions[0], kept)


def test_normalised_observations_are_clipped_and_frames_are_counted_exactly():
    spec = run_spec("CartPole-v1", normalizer={"enabled": True, "clip": 1.5})
    measure = reference.normalization(spec)
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(4, spec.size)).astype(np.float32)
    observations = rng.normal(0, 3, (4, 4)).astype(np.float32)
    policy, arranged = policy_with(spec, observations, rows)
    policy.slots[:] = [1, 0, 1, -1]
    sums = np.zeros((2, 4, 4), np.uint64)
    clip = np.float32(1.5)
    view = View(measure.mean, measure.inverse_deviation, clip, measure.shift, measure.scale, sums)
    policy.act(np.arange(4), arranged, view)
    for lane in range(4):
        seen = reference.see(spec, observations[lane], measure)
        assert np.abs(seen).max() <= 1.5
        np.testing.assert_array_equal(
            policy.outputs[lane], reference.outputs(spec, rows[lane], seen)
        )
    quantised = np.rint((observations.astype(np.float64) - measure.shift) * measure.scale)
    for slot, lanes in enumerate([[1], [0, 2]]):
        found = normalizer.from_words(len(lanes), sums[slot])
        assert found.linear == tuple(int(q) for q in quantised[lanes].sum(axis=0))
        assert found.square == tuple(int(q) for q in (quantised[lanes] ** 2).sum(axis=0))


def test_an_unsound_observation_stops_everything_before_a_frame_counts():
    spec = run_spec("CartPole-v1")
    measure = reference.normalization(spec)
    policy, arranged = policy_with(spec, np.ones((3, 4)), np.ones((3, spec.size), np.float32))
    policy.slots[:] = 0
    sums = np.zeros((1, 4, 4), np.uint64)
    view = View(
        measure.mean, measure.inverse_deviation, np.float32(5), measure.shift, measure.scale, sums
    )
    policy.observations[1, 2] = np.inf
    assert policy.act(np.arange(3), arranged, view) is None
    assert not sums.any()
    assert [policy.sound(lane) for lane in range(3)] == [True, False, True]
    assert policy.act(np.array([0, 2]), arranged, view) is not None
    assert sums.any()


@pytest.mark.parametrize("rung", [4, 9, -1])
def test_a_value_outside_a_discrete_space_is_unsound(rung):
    spec = run_spec("ToyLadder-v0", policy={"kind": "linear"})
    policy, arranged = policy_with(spec, [rung], np.zeros((1, spec.size), np.float32))
    assert policy.act(np.arange(1), arranged, plain_view(spec)) is None
    assert not policy.sound(0)


def recurrent_spec(
    hidden: list[int], inputs: int = 3, actions: int = 2, kind: str = "gru"
) -> RunSpec:
    return spec_of(hidden, inputs, actions, kind=kind)


def recurrent_outputs(spec: RunSpec, frames: Any, rows: Any) -> Any:
    """Outputs at each of the frames, shape (steps, lanes, inputs), from the zero state on."""
    policy, arranged = policy_with(spec, frames[0], rows)
    found = []
    for observations in frames:
        policy.observations[:] = observations
        assert policy.act(np.arange(len(rows)), arranged, plain_view(spec)) is not None
        found.append(policy.outputs.copy())
    return np.array(found)


@settings(max_examples=40, deadline=None)
@given(
    inputs=st.integers(1, 20),
    hidden=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    actions=st.integers(1, 12),
    kind=st.sampled_from(["gru", "lstm"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_recurrent_units_are_the_plain_sums_in_order(inputs, hidden, actions, kind, seed):
    spec = recurrent_spec(hidden, inputs, actions, kind)
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (3, spec.size)).astype(np.float32)
    frames = rng.normal(0, 3, (4, 3, inputs)).astype(np.float32)
    found = recurrent_outputs(spec, frames, rows)
    for lane in range(3):
        states = reference.start(spec)
        for step in range(4):
            expected = reference.remember(spec, rows[lane], frames[step, lane], states)
            np.testing.assert_array_equal(found[step, lane], expected)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_units_agree_with_torch(kind):
    torch = pytest.importorskip("torch")
    spec = recurrent_spec([8, 8], 6, 3, kind)
    row = reference.theta(spec, 3)
    tensors = {name: torch.from_numpy(t) for name, t in to_tensors(spec, row, None).items()}
    units = getattr(torch.nn, kind.upper())(6, 8, num_layers=2)
    # Ours are named gru.<layer>.<name>, those of a torch GRU <name>_l<layer>.
    units.load_state_dict(
        {
            f"{name}_l{layer}": tensors[f"{kind}.{layer}.{name}"]
            for layer in (0, 1)
            for name in reference.GATES
        }
    )
    frames = np.random.default_rng(4).normal(size=(30, 5, 6)).astype(np.float32)
    found = recurrent_outputs(spec, frames, np.tile(row, (5, 1)))
    state = None
    with torch.no_grad():
        for step in range(30):
            _, state = units(torch.from_numpy(frames[step : step + 1]), state)
            hidden = state if kind == "gru" else state[0]
            remembered = torch.cat([hidden[0], hidden[1]], dim=1)
            expected = remembered @ tensors["readout.weight"].T + tensors["readout.bias"]
            np.testing.assert_allclose(found[step], expected.numpy(), rtol=2e-5, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 4)), max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from(["gru", "lstm"]),
)
def test_an_episode_is_remembered_from_its_begin_and_by_its_lane_alone(episodes, order, kind):
    """Episodes of (lane, row, steps), one after the other in a lane, lanes moved at random."""
    spec = recurrent_spec([3, 4], kind=kind)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, spec.size)).astype(np.float32)
    frames = rng.normal(size=(4, 3)).astype(np.float32)
    policy, arranged = policy_with(spec, np.zeros((4, 3)), rows[:4])
    arranged = np.ascontiguousarray(rows[:, policy.order])
    waiting = {lane: [e for e in episodes if e[0] == lane] for lane in range(4)}
    playing: dict[int, Any] = {}
    while any(waiting.values()) or playing:
        for lane in range(4):
            if lane not in playing and waiting[lane]:
                _, row, steps = waiting[lane].pop(0)
                policy.begin(lane, row, -1, 0)
                playing[lane] = (row, 0, steps, reference.start(spec))
        moved = order.sample(sorted(playing), order.randint(1, len(playing)))
        policy.observations[moved] = [frames[playing[lane][1]] for lane in moved]
        policy.act(np.array(moved), arranged, plain_view(spec))
        for position, lane in enumerate(moved):
            row, step, steps, states = playing.pop(lane)
            expected = reference.remember(spec, rows[row], frames[step], states)
            np.testing.assert_array_equal(policy.outputs[position], expected)
            if step + 1 < steps:
                playing[lane] = (row, step + 1, steps, states)


def image_spec(shape: list[int], convolutions: Any, hidden: list[int], **policy: Any) -> RunSpec:
    return run_spec(
        environment={"observation": {"kind": "box", "shape": shape, "dtype": "uint8"}},
        policy={"kind": "cnn", "convolutions": convolutions, "hidden": hidden, **policy},
    )


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(4, 12), st.integers(4, 12)),
    channels=st.integers(1, 3),
    layout=st.sampled_from(["first", "last", "none"]),
    convolutions=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 2)), max_size=2
    ),
    hidden=st.lists(st.integers(1, 9), max_size=1),
    activation=st.sampled_from(["tanh", "relu"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_convolutions_are_the_plain_sums_in_order(
    size, channels, layout, convolutions, hidden, activation, seed
):
    left = min(size)
    for _, kernel, stride in convolutions:
        assume(kernel <= left)  # a spec of others is refused
        left = (left - kernel) // stride + 1
    layouts = {"first": [channels, *size], "last": [*size, channels], "none": [*size]}
    shape = layouts[layout]
    spec = image_spec(shape, convolutions, hidden, activation=activation)
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (2, spec.size)).astype(np.float32)
    observations = rng.integers(0, 256, (2, *shape)).astype(np.uint8)
    found = outputs_of(spec, observations, rows)
    for lane in range(2):
        seen = reference.see(spec, observations[lane], None)
        np.testing.assert_array_equal(found[lane], reference.outputs(spec, rows[lane], seen))


@pytest.mark.parametrize("shape", [[3, 20, 24], [20, 24, 3]])
def test_convolutions_agree_with_torch(shape):
    torch = pytest.importorskip("torch")
    spec = image_spec(shape, [[8, 5, 2], [6, 3, 2]], [10], activation="relu")
    row = reference.theta(spec, 3)
    parts = {name: torch.from_numpy(t) for name, t in to_tensors(spec, row, None).items()}
    observations = np.random.default_rng(4).integers(0, 256, (3, *shape)).astype(np.uint8)
    found = outputs_of(spec, observations, np.tile(row, (3, 1)))
    images = torch.from_numpy(observations).float() / 255
    x = images if shape[0] == 3 else images.permute(0, 3, 1, 2)
    for layer in (0, 1):
        weights, bias = (parts[f"convolutions.{layer}.{kind}"] for kind in ("weight", "bias"))
        x = torch.relu(torch.nn.functional.conv2d(x, weights, bias, stride=2))
    x = torch.relu(x.flatten(1) @ parts["layers.0.weight"].T + parts["layers.0.bias"])
    expected = x @ parts["layers.1.weight"].T + parts["layers.1.bias"]
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-4, atol=2e-4)


def test_images_are_normalised_before_they_are_turned():
    spec = run_spec(
        environment={"observation": reference.box(2, 5, 6)},
        policy={"kind": "cnn", "convolutions": [[3, 2, 1]], "hidden": []},
        normalizer={"enabled": True, "clip": 1.5},
    )
    measure = reference.normalization(spec)
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(2, spec.size)).astype(np.float32)
    observations = rng.normal(0, 3, (2, 2, 5, 6)).astype(np.float32)
    policy, arranged = policy_with(spec, observations, rows)
    clip, sums = np.float32(1.5), np.zeros((0, 60, 4), np.uint64)
    view = View(measure.mean, measure.inverse_deviation, clip, measure.shift, measure.scale, sums)
    policy.act(np.arange(2), arranged, view)
    for lane in range(2):
        seen = reference.see(spec, observations[lane], measure)
        expected = reference.outputs(spec, rows[lane], seen)
        np.testing.assert_array_equal(policy.outputs[lane], expected)


@pytest.mark.parametrize("noise", ["fixed", "learned", "predicted"])
def test_noise_of_actions_has_the_deviation_that_it_should(noise):
    action = {**reference.box(2), "low": [-1e9, -1e9], "high": [1e9, 1e9]}
    spec = run_spec(
        environment={"observation": reference.box(1), "action": action},
        policy={"kind": "linear", "action_noise": noise, "action_deviation": 0.5},
    )
    theta = np.zeros(spec.size, np.float32)
    if noise != "fixed":  # parameters of their own, or biases of the last two outputs
        theta[-2:] = np.log([2.0, 40.0])
    policy, arranged = policy_with(spec, np.zeros((500, 1)), np.tile(theta, (500, 1)))
    for lane in range(500):
        policy.begin(lane, 0, -1, lane, quiet=lane == 0)
    drawn = []
    for _ in range(20):
        actions = policy.act(np.arange(500), arranged, plain_view(spec))
        assert actions is not None and not actions[0].any()
        drawn.extend(actions[1:])
    expected = [0.5, 0.5] if noise == "fixed" else [1.0, 20.0]
    np.testing.assert_allclose(np.std(drawn, axis=0), expected, rtol=0.03)
    np.testing.assert_allclose(np.mean(drawn, axis=0) / expected, 0.0, atol=0.04)
    assert abs(np.corrcoef(np.transpose(drawn))[0, 1]) < 0.04
    assert len({action.tobytes() for action in drawn}) > 0.9 * len(drawn)


def test_a_deviation_is_never_without_bounds():
    action = {**reference.box(1), "low": [-1e9], "high": [1e9]}
    spec = run_spec(
        environment={"observation": reference.box(1), "action": action},
        policy={"kind": "linear", "action_noise": "learned"},
    )
    for log in (np.inf, -np.inf, 1e30):
        theta = np.array([0.0, 0.0, log], np.float32)
        policy, arranged = policy_with(spec, np.zeros((1, 1)), theta[np.newaxis])
        policy.begin(0, 0, -1, 5)
        (found,) = policy.act(np.arange(1), arranged, plain_view(spec))
        assert np.isfinite(found).all() and abs(found[0]) < 0.1 * np.exp(10) * 5


ROOM = {"observation": reference.discrete(9)}
VIEWED = {"observation": {"kind": "box", "shape": [7, 6, 2], "dtype": "uint8"}}
KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "linear"}, {}),
    *(({"kind": "mlp", "activation": name}, {}) for name in ("tanh", "relu", "gelu", "softplus")),
    ({"kind": "gru"}, {}),
    ({"kind": "lstm"}, {}),
    *(
        ({"kind": "cnn", "convolutions": [[3, 3, 2]], "activation": name}, VIEWED)
        for name in ("tanh", "elu")
    ),
    ({"kind": "tabular"}, ROOM),
]


@pytest.mark.parametrize("noise", ["none", "learned", "predicted"])
@pytest.mark.parametrize(("policy", "environment"), KINDS)
def test_a_policy_of_any_kind_is_written_read_and_acts_alike_in_any_lane(
    policy, environment, noise
):
    action = {**reference.box(2), "low": [-9.0, -9.0], "high": [9.0, 9.0]}
    sections = {"hidden": [4], "initialisation": "orthogonal", "action_noise": noise, **policy}
    spec = run_spec(environment={**environment, "action": action}, policy=sections)
    theta = initial_state(spec).theta
    written = to_tensors(spec, theta, None)
    np.testing.assert_array_equal(from_tensors(spec, written, Path("a"))[0], theta)
    rows = theta + np.random.default_rng(1).normal(0, 0.3, (6, spec.size)).astype(np.float32)
    shape = making.make(spec, 1).targets[0].shape
    seen = np.random.default_rng(2).integers(0, 9, (6, *shape))
    told = []
    for order in ([0, 1, 2, 3, 4, 5], [3, 5, 0], [4, 2, 1]):
        acting, arranged = policy_with(spec, seen, rows)
        for lane in order:
            acting.begin(lane, lane, -1, 40 + lane)
        for _ in range(3):
            actions = acting.act(np.array(order), arranged, plain_view(spec))
            assert actions is not None
        told.append(dict(zip(order, [action.tolist() for action in actions], strict=True)))
    assert told[0] == {**told[1], **told[2]}
    assert len({tuple(action) for action in told[0].values()}) == 6


def digest() -> str:
    """What the forward pass gives for some policies, as one hash."""
    found = hashlib.blake2b(digest_size=16)
    for hidden, activation in (([], "tanh"), ([32], "tanh"), ([33, 17], "relu"), ([64], "tanh")):
        spec = spec_of(hidden, 19, 9, activation=activation)
        rng = np.random.default_rng(9)
        rows = rng.normal(size=(40, spec.size)).astype(np.float32)
        observations = rng.normal(size=(40, 19)).astype(np.float32)
        found.update(outputs_of(spec, observations, rows).tobytes())
    spec = recurrent_spec([7, 12], 19, 9)
    rows = rng.normal(size=(40, spec.size)).astype(np.float32)
    frames = rng.normal(size=(3, 40, 19)).astype(np.float32)
    found.update(recurrent_outputs(spec, frames, rows).tobytes())
    spec = run_spec("ToyGarden-v0", policy={"choice": "sample", "squash": "tanh"})
    drawn = Actions(spec, 40).prepare(np.arange(40), frames[0], np.arange(40), None)()
    for place, inner, beds in drawn:
        for part in (place, inner["power"], inner["valves"], beds):
            found.update(part.tobytes())
    spec = image_spec([20, 20, 2], [[9, 4, 2], [17, 3, 2]], [12])
    rows = rng.normal(size=(4, spec.size)).astype(np.float32)
    images = rng.integers(0, 256, (4, 20, 20, 2)).astype(np.uint8)
    found.update(outputs_of(spec, images, rows).tobytes())
    return found.hexdigest()


def test_the_same_bits_without_the_vector_unit():
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import digest; print(digest())"],
        env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest()
