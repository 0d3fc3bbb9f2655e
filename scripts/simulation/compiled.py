"""CartPole-v1 and Acrobot-v1 with the policy in one compiled loop: the episodes that the worker's
lanes play with Gymnasium's, twenty times as fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol import noise, strategies
from protocol.spec import RunSpec
from worker.evaluation.blocks import centre_seeds, member_seeds
from worker.evaluation.jobs import Evaluation, EvaluationJob, Normalization
from worker.policies.activations import code
from worker.policies.dense import forward
from worker.policies.layers import order
from worker.policies.policy import View

Room = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.float32],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.uint64],
    NDArray[np.float32],
    NDArray[np.float32],
]
"""What `forward` works on for one lane: its number, its row of the parameters, no normaliser, no
slot of observation sums, no measure, no sums; scratch and outputs."""


@njit(error_model="numpy")
def _room(widths: NDArray[np.int64]) -> Room:
    return (
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.empty(0, np.float32),
        np.full(1, -1),
        np.empty(0),
        np.empty((0, 0, 4), np.uint64),
        np.empty((2, widths.max()), np.float32),
        np.empty((1, widths[-1]), np.float32),
    )


@njit(error_model="numpy")
def _choose(
    observation: NDArray[np.float32],
    parameters: NDArray[np.float32],
    widths: NDArray[np.int64],
    activation: int,
    room: Room,
) -> int:
    """The action of one member: the first of its largest outputs."""
    lane, row, none, slot, nothing, sums, scratch, outputs = room
    view = View(none, none, np.float32(0.0), nothing, nothing, sums)
    each = 2  # which `forward` asks for where members are not built
    forward(
        lane, observation, row, parameters, each, widths, activation, slot, view, scratch, outputs
    )
    best = 0
    for action in range(1, outputs.shape[1]):
        if outputs[0, action] > outputs[0, best]:
            best = action
    return best


@njit(cache=True, error_model="numpy")
def _cartpole(
    starts: NDArray[np.float64],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    widths: NDArray[np.int64],
    activation: int,
    limit: int,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> None:
    """Barto, Sutton and Anderson 1983, as Gymnasium has it: Euler steps of 0.02 s."""
    room = _room(widths)
    observation = np.empty((1, 4), np.float32)
    widest = 12 * 2 * np.pi / 360
    for episode in range(rows.size):
        room[1][0] = rows[episode]
        x, speed, angle, turning = starts[episode]
        step, up = 0, True
        while up and step < limit:
            observation[0, 0], observation[0, 1] = x, speed
            observation[0, 2], observation[0, 3] = angle, turning
            action = _choose(observation, parameters, widths, activation, room)
            force = 10.0 if action == 1 else -10.0
            cosine, sine = np.cos(angle), np.sin(angle)
            push = (force + 0.05 * (turning * turning) * sine) / 1.1
            twist = (9.8 * sine - cosine * push) / (
                0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1)
            )
            gain = push - 0.05 * twist * cosine / 1.1
            x, speed = x + 0.02 * speed, speed + 0.02 * gain
            angle, turning = angle + 0.02 * turning, turning + 0.02 * twist
            up = -2.4 <= x <= 2.4 and -widest <= angle <= widest
            step += 1
        returns[episode] = lengths[episode] = step


@njit(error_model="numpy")
def _swing(
    first: float, second: float, turn: float, bend: float, torque: float
) -> tuple[float, float]:
    """Accelerations of Acrobot's two links: Sutton and Barto 1998, section 11.3."""
    cosine, sine = np.cos(second), np.sin(second)
    d1 = 0.25 + (1.25 + cosine) + 2.0
    d2 = (0.25 + 0.5 * cosine) + 1.0
    phi2 = 0.5 * 9.8 * np.cos(first + second - np.pi / 2.0)
    phi1 = (
        -0.5 * (bend * bend) * sine
        - bend * turn * sine
        + 1.5 * 9.8 * np.cos(first - np.pi / 2)
        + phi2
    )
    bending = (torque + d2 / d1 * phi1 - 0.5 * (turn * turn) * sine - phi2) / (1.25 - d2 * d2 / d1)
    return -(d2 * bending + phi1) / d1, bending


@njit(error_model="numpy")
def _wrapped(angle: float) -> float:
    while angle > np.pi:
        angle -= 2 * np.pi
    while angle < -np.pi:
        angle += 2 * np.pi
    return angle


@njit(cache=True, error_model="numpy")
def _acrobot(
    starts: NDArray[np.float64],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    widths: NDArray[np.int64],
    activation: int,
    limit: int,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> None:
    """Sutton 1996, as Gymnasium has it: Runge-Kutta steps of 0.2 s."""
    room = _room(widths)
    observation = np.empty((1, 6), np.float32)
    for episode in range(rows.size):
        room[1][0] = rows[episode]
        # Gymnasium rounds where an episode starts to float32.
        a, b, c, d = starts[episode].astype(np.float32).astype(np.float64)
        step, low = 0, True
        while low and step < limit:
            observation[0, 0], observation[0, 1] = np.cos(a), np.sin(a)
            observation[0, 2], observation[0, 3] = np.cos(b), np.sin(b)
            observation[0, 4], observation[0, 5] = c, d
            action = _choose(observation, parameters, widths, activation, room)
            torque = action - 1.0
            c1, d1 = _swing(a, b, c, d, torque)
            p2, q2 = c + 0.1 * c1, d + 0.1 * d1
            c2, d2 = _swing(a + 0.1 * c, b + 0.1 * d, p2, q2, torque)
            p3, q3 = c + 0.1 * c2, d + 0.1 * d2
            c3, d3 = _swing(a + 0.1 * p2, b + 0.1 * q2, p3, q3, torque)
            p4, q4 = c + 0.2 * c3, d + 0.2 * d3
            c4, d4 = _swing(a + 0.2 * p3, b + 0.2 * q3, p4, q4, torque)
            sixth = 0.2 / 6.0
            a = _wrapped(a + sixth * (c + 2 * p2 + 2 * p3 + p4))
            b = _wrapped(b + sixth * (d + 2 * q2 + 2 * q3 + q4))
            c = min(max(c + sixth * (c1 + 2 * c2 + 2 * c3 + c4), -4 * np.pi), 4 * np.pi)
            d = min(max(d + sixth * (d1 + 2 * d2 + 2 * d3 + d4), -9 * np.pi), 9 * np.pi)
            low = -np.cos(a) - np.cos(b + a) <= 1.0
            step += 1
        lengths[episode] = step
        returns[episode] = -step if low else 1 - step


class Compiled(NamedTuple):
    """An environment: its loop, and within how much of 0 its state lies at the start."""

    loop: Callable[..., None]
    spread: float
    limit: int


ENVIRONMENTS: Mapping[str, Compiled] = {
    "CartPole-v1": Compiled(_cartpole, 0.05, 500),
    "Acrobot-v1": Compiled(_acrobot, 0.1, 500),
}


def plays(spec: RunSpec) -> bool:
    """Whether a run's episodes are among those that can be played here."""
    environment = spec.environment
    plain = not environment.kwargs and not environment.max_steps and environment.episodes == 1
    plain = (
        plain
        and spec.policy.kind in ("linear", "mlp")
        and spec.factors is None
        and not spec.normalizer.enabled
    )
    plain = plain and not strategies.get(spec.strategy.kind).needs_gaussian
    return environment.id in ENVIRONMENTS and plain


class CompiledLanes:
    """Evaluates as `worker.evaluation.lanes.Lanes` does, for runs that it `plays`."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        widths = [spec.layers[0][0], *(outputs for _, outputs in spec.layers)]
        self._order = order(spec.tensors)
        self._widths = np.array(widths, dtype=np.int64)

    def evaluate(
        self,
        job: EvaluationJob,
        theta: NDArray[np.float32],
        normalization: Normalization | None = None,
    ) -> Evaluation:
        """The returns of a job, for which there is no `normalization`; see `Lanes.evaluate`."""
        ordered = theta[self._order]
        if job.kind == "centre":
            seeds, members = centre_seeds(self.spec, job), ordered[np.newaxis]
            rows = np.zeros(job.count, dtype=np.int64)
        else:
            each = job.per_direction
            seeds = member_seeds(self.spec, job)[:, 0].tolist()
            kind, run_seed = self.spec.strategy.noise, self.spec.seed
            members = noise.members(
                kind,
                run_seed,
                job.first,
                job.count,
                ordered,
                job.sigma,
                order=self._order,
                per_direction=each,
            )
            rows = np.arange(each * job.count)
        compiled = ENVIRONMENTS[self.spec.environment.id]
        starts = np.array(
            [np.random.default_rng(s).uniform(-compiled.spread, compiled.spread, 4) for s in seeds]
        )
        returns, lengths = np.empty(len(seeds)), np.empty(len(seeds), dtype=np.int64)
        activation = code(self.spec.policy.activation)
        compiled.loop(
            starts, rows, members, self._widths, activation, compiled.limit, returns, lengths
        )
        shape = job.shape
        return Evaluation(job.first, returns.reshape(shape), lengths.reshape(shape))

    def close(self) -> None:
        """Nothing is open."""
