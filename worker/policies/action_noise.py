"""Normal noise on outputs that become continuous actions, drawn by a stream of the episode's seed:
the same on every CPU and in every lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol import noise, policies
from protocol.spec import RunSpec
from worker.policies.calls import prepared
from worker.policies.exact import exp
from worker.policies.sampling import uniform

LARGEST_LOG = 10.0  # a deviation is at most exp(10) times the spec's, and at least exp(-10) times
ENTRIES = 65536.0  # of the table


@njit(cache=True, error_model="numpy")
def take(
    lanes: NDArray[np.int64],
    rows: NDArray[np.int64],
    parameters: NDArray[np.float32],
    logs: NDArray[np.float32],
) -> None:
    """Write the last parameters of the rows that `lanes` play to `logs`, shape (at least l, n)."""
    many = logs.shape[1]
    for position in range(lanes.size):
        row = parameters[rows[lanes[position]]]
        for i in range(many):
            logs[position, i] = row[row.size - many + i]


@njit(cache=True, error_model="numpy")
def add(
    lanes: NDArray[np.int64],
    run_seed: np.uint64,
    episodes: NDArray[np.int64],
    quiet: NDArray[np.bool_],
    columns: NDArray[np.int64],
    normal: NDArray[np.float64],
    deviation: float,
    varied: bool,
    logs: NDArray[np.float32],
    first: int,
    outputs: NDArray[np.float32],
) -> None:
    """Add noise to the outputs in `columns`; each takes the episode's next number, in their order.

    Args:
        lanes: shape (l,); row i of `logs` and `outputs` belongs to lanes[i].
        episodes: shape (L, 2), of each lane's episode the seed, and how many numbers it has had.
        quiet: shape (L,), whose episode is without noise and takes no number.
        normal: shape (65536,), quantiles of the standard normal distribution.
        deviation: of the noise; where it is varied, times exp(logs).
        logs: shape (at least l, first + columns at least), from column `first` on.
    """
    block = np.empty(8, np.uint64)
    for position in range(lanes.size):
        lane = lanes[position]
        if quiet[lane]:
            continue
        seed, number = np.uint64(episodes[lane, 0]), episodes[lane, 1]
        for i in range(columns.size):
            value = deviation * normal[int(uniform(run_seed, seed, number, block) * ENTRIES)]
            number += 1
            if varied:
                log = min(max(np.float64(logs[position, first + i]), -LARGEST_LOG), LARGEST_LOG)
                value *= exp(log)
            outputs[position, columns[i]] += np.float32(value)
        episodes[lane, 1] = number


class ActionNoise:
    """A run's noise of actions on some lanes.

    Args:
        apart: whether learned deviations are among the outputs, as those of a PyTorch module are,
            and not read from the parameters.
    """

    def __init__(self, spec: RunSpec, lanes: int, *, apart: bool) -> None:
        policy = spec.policy
        self._run_seed = np.uint64(spec.seed)
        self._deviation = policy.action_deviation
        self._normal = noise.gaussian_table().astype(np.float64) * noise.unit(noise.GAUSSIAN)
        self._varied = policy.action_noise != "fixed"
        self._first = spec.environment.action.size
        self._taken = policy.action_noise == "learned" and not apart
        count = policies.reals(spec.environment.action) if self._taken else 0
        self._logs = np.empty((lanes, count), dtype=np.float32)
        self.quiet = np.zeros(lanes, dtype=np.bool_)
        """lanes whose episode is without noise"""

    def prepare(
        self,
        lanes: NDArray[np.int64],
        episodes: NDArray[np.int64],
        columns: NDArray[np.int64],
        outputs: NDArray[np.float32],
        rows: NDArray[np.int64],
        parameters: Any,
    ) -> list[Callable[[], None]]:
        """Calls that add noise to the first rows of `outputs`, those of `lanes`; see `add`."""
        calls, logs, first = [], outputs, self._first
        if self._taken:
            logs, first = self._logs, 0
            calls.append(prepared(take, lanes, rows, parameters, logs))
        drawn = self._run_seed, episodes, self.quiet, columns, self._normal, self._deviation
        calls.append(prepared(add, lanes, *drawn, self._varied, logs, first, outputs))
        return calls
