"""Evaluation as plainly as it can be written: what the fast one must give, bit for bit."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from protocol import noise
from protocol.policies import choices
from protocol.policy_file import to_tensors
from protocol.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, leaves
from protocol.spec import RunSpec, parse, seen_choices, seen_image
from protocol.streams import Domain, words
from protocol.wrappers import ActionRepeat, FrameStack, RescaleObservation, RewardClip, Wrapper
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.policies import activations, elementwise

TOYS = "tests.worker.toy_environments"
Numbers = Iterator[float] | None
"""What drawn actions take their numbers from; None where the largest output wins."""
GATES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def run_spec(environment_id: str = "CartPole-v1", **sections: Any) -> RunSpec:
    """The spec of a run in an environment that is known here; `sections` are laid over it."""
    small = {**box(2, 3), "dtype": "uint8"}
    spaces: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "CartPole-v1": (box(4), discrete(2)),
        "Pendulum-v1": (box(3), {**box(1), "low": [-2.0], "high": [2.0]}),
        "FrozenLake-v1": (discrete(16), discrete(4)),
        "Taxi-v4": (discrete(500), discrete(6)),
        "Blackjack-v1": (
            {"kind": "tuple", "spaces": [discrete(32), discrete(11), discrete(2)]},
            discrete(2),
        ),
        "ToyMiser-v0": (small, {**box(2, 1), "low": [-1.0, 0.0], "high": [1.0, 3.0]}),
        "ToyAlbum-v0": (
            {**box(9, 8, 3), "dtype": "uint8"},
            {**box(2, 1), "low": [-1.0, 0.0], "high": [1.0, 3.0]},
        ),
        "ToyRescaled-v0": (small, {**box(2, 1), "low": [-1.0, -1.0], "high": [1.0, 1.0]}),
        "ToyLadder-v0": ({**discrete(4), "start": 5}, {**discrete(2), "start": 3}),
    }
    spaces["ToyGarden-v0"] = (
        {
            "kind": "dict",
            "names": ["beds", "gates", "inside", "view"],
            "spaces": [
                {
                    "kind": "multi-discrete",
                    "choices": [2, 3, 4, 2],
                    "shape": [2, 2],
                    "start": [0, 1, 0, -5],
                },
                {"kind": "multi-binary", "shape": [3]},
                {"kind": "tuple", "spaces": [{**discrete(3), "start": 2}, box(2)]},
                {**box(2, 2), "dtype": "uint8"},
            ],
        },
        {
            "kind": "tuple",
            "spaces": [
                {**discrete(3), "start": -1},
                {
                    "kind": "dict",
                    "names": ["power", "valves"],
                    "spaces": [
                        {**box(2), "low": [-1.0, -1.0], "high": [2.0, 2.0]},
                        {"kind": "multi-binary", "shape": [2, 2]},
                    ],
                },
                {"kind": "multi-discrete", "choices": [3, 2], "shape": [2], "start": [1, 0]},
            ],
        },
    )
    observation, action = spaces.get(environment_id, (box(2), discrete(3)))
    extra = sections.pop("environment", {})
    return parse(
        {
            "name": "test",
            "seed": 7,
            "environment": {
                "id": environment_id,
                "observation": observation,
                "action": action,
                **extra,
            },
            "policy": {"hidden": [5]},
            **sections,
        }
    )


def box(*shape: int) -> dict[str, Any]:
    """A Box space in the spec's words."""
    return {"kind": "box", "shape": list(shape)}


def discrete(n: int) -> dict[str, Any]:
    """A Discrete space in the spec's words."""
    return {"kind": "discrete", "n": n}


def theta(spec: RunSpec, seed: int = 0) -> NDArray[np.float32]:
    """Parameters to start from."""
    return np.random.default_rng(seed).normal(0.0, 0.5, spec.size).astype(np.float32)


def normalization(spec: RunSpec) -> Normalization:
    """A version's view of observations, as good as any."""
    dims = spec.environment.observation.size
    rng = np.random.default_rng(5)
    return Normalization(
        mean=rng.normal(0, 0.1, dims).astype(np.float32),
        inverse_deviation=rng.uniform(0.5, 2.0, dims).astype(np.float32),
        shift=rng.normal(0, 0.1, dims),
        scale=np.full(dims, 2.0**12),
    )


def tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The formula of `activations.tanh`, in NumPy."""
    x = np.minimum(np.maximum(x, -activations.TANH_SATURATION), activations.TANH_SATURATION)
    square = x * x
    a, b = np.full_like(x, activations.P4), np.full_like(x, activations.Q4)
    for p in (activations.P3, activations.P2, activations.P1, activations.ONE):
        a = a * square + p
    for q in (activations.Q3, activations.Q2, activations.Q1, activations.ONE):
        b = b * square + q
    return np.minimum(np.maximum(x * a / b, np.float32(-1)), np.float32(1))


def affine(
    weights: NDArray[np.float32], bias: NDArray[np.float32], inputs: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Inputs summed in order, then the bias."""
    total = np.zeros(len(weights), np.float32)
    for i in range(inputs.size):
        total = total + weights[:, i] * inputs[i]
    return total + bias


def sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The formula of `activations.sigmoid`, in NumPy."""
    half = np.float32(0.5)
    return half + half * tanh(half * x)


def start(spec: RunSpec) -> list[NDArray[np.float32]]:
    """What a policy remembers when an episode begins."""
    shapes = {"gru": (1,), "lstm": (2,)}.get(spec.policy.kind, ())
    return [np.zeros((parts, n), np.float32) for n in spec.policy.hidden for parts in shapes]


def remember(
    spec: RunSpec,
    row: NDArray[np.float32],
    seen: NDArray[np.float32],
    states: list[NDArray[np.float32]],
) -> NDArray[np.float32]:
    """The readout of recurrent units, whose states are moved on."""
    tensors, kind = to_tensors(spec, row, None), spec.policy.kind
    current = seen
    for layer, state in enumerate(states):
        part = {name: tensors[f"{kind}.{layer}.{name}"] for name in GATES}
        new = affine(part["weight_ih"], part["bias_ih"], current)
        old = affine(part["weight_hh"], part["bias_hh"], state[0])
        if kind == "gru":
            (r, z, n), (hr, hz, hn) = np.split(new, 3), np.split(old, 3)
            reset, update = sigmoid(r + hr), sigmoid(z + hz)
            state[0] = (np.float32(1) - update) * tanh(n + reset * hn) + update * state[0]
        else:
            i, f, g, o = np.split(new + old, 4)
            state[1] = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
            state[0] = sigmoid(o) * tanh(state[1])
        current = state[0]
    head = tensors["readout.weight"], tensors["readout.bias"]
    return affine(*head, np.concatenate([state[0] for state in states]))


def outputs(
    spec: RunSpec, row: NDArray[np.float32], seen: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The last dense layer's outputs for one observation."""
    if spec.policy.kind == "cnn":
        return convolutional(spec, row, seen)
    if spec.policy.kind == "tabular":
        places, begin = [], 0
        for many in choices(spec.environment.observation) or ():
            places.append(int(np.argmax(seen[begin : begin + many])))
            begin += many
        table = row[: spec.tensors[0].size].reshape(*seen_choices(spec.environment), -1)
        found: NDArray[np.float32] = table[tuple(places)]
        return found
    current, begin = seen, 0
    for layer, (inputs, many) in enumerate(spec.layers):
        if layer:
            current = activated(spec, current)
        weights = row[begin : begin + inputs * many].reshape(many, inputs)
        begin += inputs * many + many
        current = affine(weights, row[begin - many : begin], current)
    return current


def convolutional(
    spec: RunSpec, row: NDArray[np.float32], seen: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Likewise of a `cnn`; the inputs of a place are summed by row, column, channel."""
    image = seen_image(spec.environment)
    if image.channels_first:
        current = seen.reshape(image.channels, image.height, image.width).transpose(1, 2, 0)
    else:
        current = seen.reshape(image.height, image.width, image.channels)
    parts = list(to_tensors(spec, row, None).values())
    weights, biases = parts[::2], parts[1::2]
    if len(weights) > len(biases):
        weights.pop()  # learned deviations
    for layer, (_, kernel, stride) in enumerate(spec.policy.convolutions):
        turned = weights[layer].transpose(0, 2, 3, 1).reshape(len(weights[layer]), -1)
        starts = [range(0, length - kernel + 1, stride) for length in current.shape[:2]]
        patches = [
            [current[y : y + kernel, x : x + kernel].ravel() for x in starts[1]] for y in starts[0]
        ]
        current = activated(
            spec, np.array([[affine(turned, biases[layer], p) for p in line] for line in patches])
        )
    count = len(spec.policy.convolutions)
    first = weights[count].reshape(-1, *current.transpose(2, 0, 1).shape)
    vector = affine(
        first.transpose(0, 2, 3, 1).reshape(len(first), -1), biases[count], current.ravel()
    )
    for layer in range(count + 1, len(weights)):
        vector = affine(weights[layer], biases[layer], activated(spec, vector))
    return vector


def activated(spec: RunSpec, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What lies between the layers."""
    if spec.policy.activation == "tanh":
        return tanh(values)
    if spec.policy.activation == "relu":
        return np.maximum(values, 0)
    found = values.copy()
    pointer = found.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    elementwise.compiled(spec.policy.activation).ctypes(pointer, found.size)
    return found


def see(spec: RunSpec, observation: Any, view: Normalization | None) -> NDArray[np.float32]:
    """An environment's observation as the policy's input."""
    seen = flat(spec.environment.observation, observation)
    if view is None:
        return seen
    normalised = (seen - view.mean) * view.inverse_deviation
    clip = np.float32(spec.normalizer.clip)
    return np.clip(normalised, -clip, clip) if clip else normalised


def flat(space: Space, value: Any) -> NDArray[np.float32]:
    """A value of a space as a vector."""
    match space:
        case Tuple():
            parts = [flat(part, item) for part, item in zip(space.spaces, value, strict=True)]
            return np.concatenate(parts)
        case Dict():
            named = zip(space.names, space.spaces, strict=True)
            return np.concatenate([flat(part, value[name]) for name, part in named])
        case Discrete():
            return np.eye(space.n, dtype=np.float32)[int(value) - space.start]
        case MultiDiscrete():
            places = np.ravel(value) - np.array(space.start or [0] * len(space.choices))
            pairs = zip(space.choices, places, strict=True)
            return np.concatenate([np.eye(n, dtype=np.float32)[at] for n, at in pairs])
    vector: NDArray[np.float32] = np.asarray(value).astype(np.float32).ravel()
    image = isinstance(space, Box) and space.dtype == "uint8"
    return vector / np.float32(255) if image else vector


def act(
    spec: RunSpec,
    row: NDArray[np.float32],
    seen: NDArray[np.float32],
    states: list[NDArray[np.float32]],
    numbers: Numbers = None,
) -> Any:
    """The action for one input; `states` are moved on."""
    out = remember(spec, row, seen, states) if states else outputs(spec, row, seen)
    space, noisy = spec.environment.action, spec.policy.action_noise != "none"
    if numbers is None:
        return decode(spec, space, out[: space.size], None)
    drawn: Numbers = None
    if spec.policy.choice == "sample":
        drawn = iter([next(numbers) for _ in range(draws(space))])
    if noisy:
        out = out.copy()
        columns = [place for place, real in enumerate(are_real(space)) if real]
        logs = row[-len(columns) :] if spec.policy.action_noise == "learned" else out[space.size :]
        for i, column in enumerate(columns):
            normal = float(noise.gaussian_table()[int(next(numbers) * 65536)]) / 4096
            value = spec.policy.action_deviation * normal
            if spec.policy.action_noise != "fixed":
                value *= math.exp(min(max(float(logs[i]), -10.0), 10.0))
            out[column] += np.float32(value)
    return decode(spec, space, out[: space.size], drawn)


def draws(space: Space) -> int:
    """How many numbers it takes to draw an action's choices and switches."""
    counts = {Discrete: lambda part: 1, Box: lambda part: 0, MultiBinary: lambda part: part.size}
    return sum(
        len(part.choices) if isinstance(part, MultiDiscrete) else counts[type(part)](part)
        for part in leaves(space)
    )


def are_real(space: Space) -> list[bool]:
    """Of each output whether it is for a real number."""
    return [isinstance(part, Box) for part in leaves(space) for _ in range(part.size)]


def decode(spec: RunSpec, space: Space, out: NDArray[np.float32], numbers: Numbers) -> Any:
    """The value of a space that outputs stand for."""
    match space:
        case Discrete():
            return np.int64(space.start + choose(out, numbers))
        case MultiDiscrete():
            starts = space.start or (0,) * len(space.choices)
            pieces = np.split(out, np.cumsum(space.choices)[:-1])
            chosen = [at + choose(piece, numbers) for at, piece in zip(starts, pieces, strict=True)]
            return np.array(chosen).reshape(space.shape)
        case MultiBinary():
            return np.array([switched(o, numbers) for o in out], np.int8).reshape(space.shape)
        case Tuple() | Dict():
            pieces = np.split(out, np.cumsum([part.size for part in space.spaces])[:-1])
            pairs = zip(space.spaces, pieces, strict=True)
            values = tuple(decode(spec, part, piece, numbers) for part, piece in pairs)
            if isinstance(space, Tuple):
                return values
            return dict(zip(space.names, values, strict=True))
    low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
    if spec.policy.squash == "tanh":
        half = np.float32(0.5)
        out = (half * low + half * high) + (half * high - half * low) * tanh(out)
    return np.clip(out, low, high).reshape(space.shape)


def choose(out: NDArray[np.float32], numbers: Numbers) -> int:
    """The first largest, or drawn from the softmax."""
    if numbers is None:
        return int(np.argmax(out))
    total, sums = 0.0, []
    for o in out:
        total += math.exp(float(o) - float(out.max()))
        sums.append(total)
    number = next(numbers)
    return next(i for i, bound in enumerate(sums) if bound > number * total)


def switched(o: np.float32, numbers: Numbers) -> bool:
    """Whether a switch is on."""
    return bool(o > 0) if numbers is None else next(numbers) < 1 / (1 + math.exp(-float(o)))


def around(environment: Any, wrapper: Wrapper) -> Any:
    """An environment in a wrapper of Gymnasium's."""
    made = gymnasium.wrappers
    match wrapper:
        case FrameStack():
            return made.FrameStackObservation(environment, wrapper.n)
        case ActionRepeat():
            return made.RepeatAction(environment, wrapper.n)
        case RewardClip():
            return made.ClipReward(environment, wrapper.low, wrapper.high)
        case RescaleObservation():
            if environment.observation_space.dtype == np.uint8:
                environment = made.DtypeObservation(environment, np.float32)
            return made.RescaleObservation(
                environment, np.float32(wrapper.low), np.float32(wrapper.high)
            )
    return made.AtariPreprocessing(environment, wrapper.noop_max, screen_size=wrapper.screen_size)


def play(
    spec: RunSpec,
    row: NDArray[np.float32],
    seed: int,
    view: Normalization | None = None,
    limit: int | None = None,
) -> tuple[float, int, list[NDArray[np.float32]]]:
    """(return, length, frames) of one episode on a new instance of Gymnasium's own making."""
    about = spec.environment
    most = limit or about.max_steps or None
    environment = gymnasium.make(
        about.id, max_episode_steps=None if about.wrappers else most, **about.kwargs
    )
    for wrapper in about.wrappers:
        environment = around(environment, wrapper)
    if about.wrappers and most:
        environment = gymnasium.wrappers.TimeLimit(environment, most)
    observation, _ = environment.reset(seed=seed)
    total, frames, over, states = 0.0, [], False, start(spec)
    numbers = None
    if spec.policy.choice == "sample" or spec.policy.action_noise != "none":
        drawn = words(spec.seed, Domain.ACTION, seed, 10_000)
        numbers = (int(word >> np.uint64(11)) / 2**53 for word in drawn)
    while not over:
        frames.append(see(spec, observation, None))
        action = act(spec, row, see(spec, observation, view), states, numbers)
        observation, reward, terminated, truncated, _ = environment.step(action)
        total += float(reward)
        over = terminated or truncated
    return total, len(frames), frames


def returns(
    spec: RunSpec,
    job: EvaluationJob,
    parameters: NDArray[np.float32],
    view: Normalization | None = None,
    sigmas: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of a job of members with seeding `pair`, cut at the job's own cap."""
    sigma = job.sigma if sigmas is None else sigmas
    if spec.factors is not None:
        sigma = sigma * spec.factors
    rows = noise.members(
        spec.strategy.noise, spec.seed, job.first, job.count, parameters, sigma
    ).reshape(job.count, 2, -1)
    values, lengths = np.zeros((job.count, 2)), np.zeros((job.count, 2), np.int64)
    for d in range(job.count):
        for mirror in range(2):
            for episode in range(job.episodes):
                seed = noise.episode_seed(spec.seed, (job.first + d) * 65536 + episode)
                value, length, _ = play(spec, rows[d, mirror], seed, view, job.cap)
                values[d, mirror] += value
                lengths[d, mirror] += length
    return values / job.episodes, lengths
